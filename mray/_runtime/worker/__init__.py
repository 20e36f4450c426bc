"""Processes that run user code.

`worker` receives calls and decides when each may begin; `executor` runs them, with an `unpacker` for code and arguments and a `packer`
for results and errors. Concurrent calls of an actor belong to `concurrency_groups`. `own_process` is the process that a worker changes
and ends.
"""
