"""Processes that run user code.

`worker` receives calls and decides when each may begin; `executor` runs them, with an `unpacker` for code and arguments and a `packer`
for results and errors. Concurrent calls of an actor belong to `concurrency_groups`. `own_process` is the process that a worker changes
and ends.

====================  ====================================================================================================
inbox                 messages for the main thread, in order of arrival
final error           an exception that replaces a call's result: it was cancelled, or has called `exit_actor`
producer              a generator that runs in a worker, and the batching of its items for the caller
====================  ====================================================================================================
"""
