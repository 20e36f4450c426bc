"""The driver's side of a session: starting and ending it. Sessions that others join are in `mray._joining`.

====================  ====================================================================================================
session               the processes, memory and files between one `init` and its `shutdown`
private session       the session of one driver, which ends with it
hold                  a driver's end of a session: it joins, leaves, and cleans up after the node
stop                  a worker that waits at a breakpoint
note                  a message of a worker to its driver's terminal, written among its output
====================  ====================================================================================================
"""
