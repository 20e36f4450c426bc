"""Queries of a session's state, from any process of its user.

`observer` asks the processes of a session, and `process_snapshot` generates the answer of a driver or worker, which
loads it at the first query. (`mray._runtime.processes.stack_signal` gets the stacks of a process that cannot answer.)

====================  ====================================================================================================
observer              a process that asks, over connections of its own; no member of the session
section               one part of an answer ("calls", "objects", "stacks" ...), a list of rows or the reason why there are none
row                   a dict of builtin values about one call, object, actor or worker
snapshot              all sections of one process at one moment
====================  ====================================================================================================
"""
