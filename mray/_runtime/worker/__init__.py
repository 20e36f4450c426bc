"""Processes that run user code.

`worker` receives calls and decides when each may begin; `executor` runs one, whatever its kind. Calls of an actor that run beside others
belong to `concurrency_groups`: threads (`thread_group`) or coroutines (`loop_group`), behind the contract in `group_executor`.
`stream_producer` sends the
items of generators. `running` knows which call the code belongs to that asks; `exits` how an actor ends itself.
"""
