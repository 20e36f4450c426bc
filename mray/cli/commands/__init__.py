"""One module for each command of ``mray``: its file is all there is to adding it (see `mray.cli`)."""
