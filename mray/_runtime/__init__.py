"""Processes of a session and how they work together: driver, node, zygote, workers.

::

    driver: session, client ──▶ node: node, supervisor, (scheduler) ──▶ zygote ──▶ worker: worker, executor, client
        └────────────── calls, straight to the worker ───────────────────────────────▶ ┘

`session` starts and ends it all for a driver of its own; `persistent` a session that any number of drivers join, found by its `address`,
whose `jobs` the node keeps apart. `launch` is how an interpreter of ours is started; `node` answers and decides, `supervisor` holds the
processes below it, `zygote` forks them. `client` is what every process that can call has; `worker` and `executor` run user code.
`observer` is who looks on from outside: `snapshot` and `process_snapshot` are what it is told.

Rejected: one kind of session that everybody joins, as Ray has it. Most programs want to be alone with their machine, and to leave
nothing; a private session needs no name, no start and no stop, and its workers are there before its driver has said hello.

Rejected: workers as direct children of the node, by a double fork. It costs a second fork per worker, and the kernel's lifeline
(`mray._ipc.process`) already ties a worker to the node whoever its parent is.
"""
