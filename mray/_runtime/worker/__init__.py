"""Processes that run user code.

`worker` receives calls and decides when each may begin, `main_thread` has the calls of the main thread; `executor` runs calls of all
kinds, with an `unpacker` for code and arguments, a `packer` for results and errors, and the `live_actor` that they share. Concurrent
calls of an actor belong to `concurrency_groups`: threads (`thread_group`) or coroutines (`loop_group`), behind the contract in
`group_executor`. `stream_producer` sends the items of generators. `running` finds the call that running code belongs to. `own_process`
is the process that a worker changes and ends: `devices` shows a task or actor its devices, `pinning` keeps it on its CPUs.

====================  ====================================================================================================
inbox                 messages for the main thread, in order of arrival
executor              calls user functions: unpacks code and arguments, runs the function, packs the result or the error
concurrency group     calls of an actor that may run concurrently, up to a number
group executor        the threads or the event loop of one concurrency group, with the queue of its calls
final error           an exception that replaces a call's result: it was cancelled, or has called `exit_actor`
producer              a generator that runs in a worker, and the batching of its items for the caller
====================  ====================================================================================================
"""
