"""The door of the kernel: the names that rooms beside it may use, apart from `mray._api` and `mray._common`.

One module for each subject, loaded by name. A module's docstring is its table: each name with one sentence. `tests/house/test_inside.py`
compares the tables with the modules, their uses and the recorded signatures.

====================  ====================================================================================================
memory                shared memory between processes, its fences and doorbells
platform              the seams of a process's runtime, for engines that hand in their own
transports            contracts of channels, communicators and groups, and parts to build one from
====================  ====================================================================================================

Rejected: one flat module. Each room would load all of the kernel for three names.
"""
