"""One module for each command of ``mray`` (see `mray.cli`)."""
