"""The driver's side of a session: starting, finding, joining and ending it.

`session` is a driver's own; `persistent` one that any number of drivers join, found by its `address`. `driver_output` shows the output of
workers among `progress_bars` and `breakpoints`, whose debugger is `remote_pdb`.

====================  ====================================================================================================
session               the processes, memory and files between one `init` and its `shutdown`, or `mray start` and `mray stop`
private session       the session of one driver, which ends with it
persistent session    one that `mray start` has started, and that any driver of the user may join
hold                  a driver's end of a session: it joins, leaves, and cleans up after the node
address               the file that names the running persistent session
stop                  a worker that waits at a breakpoint
note                  a message of a worker to its driver's terminal, written among its output
====================  ====================================================================================================
"""
