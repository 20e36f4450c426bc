"""One module for each command of ``mray``."""
