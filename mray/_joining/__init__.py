"""Sessions that drivers join: `persistent`, which one command starts and another ends, found by its `address`.

Loaded by the commands, and by an `init` that names a session; a private session does not need it.

====================  ====================================================================================================
persistent session    one that `mray start` has started, and that any driver of the user may join, until `mray stop`
address               the file that names the running persistent session
====================  ====================================================================================================
"""
