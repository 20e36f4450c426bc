"""Queries of a session's state, from any process of its user: `observer` asks the processes, and `process_snapshot`, loaded at the first
query, generates the answer of a driver or worker.

====================  ====================================================================================================
observer              a process that asks, over connections of its own; no member of the session
section               one part of an answer ("calls", "objects", "stacks" ...), a list of rows or the reason why there are none
row                   a dict of builtin values about one call, object, actor or worker
snapshot              all sections of one process at one moment
====================  ====================================================================================================
"""
