"""Processes of a session and how they work together: driver, node, zygote, workers.

::

    driver: session, client ──▶ node: node, supervisor, (scheduler) ──▶ zygote ──▶ worker: worker, executor, client
        └────────────── calls, straight to the worker ───────────────────────────────▶ ┘

`session` starts and ends it all; `launch` is how an interpreter of ours is started; `node` answers and decides, `supervisor` holds the
processes below it, `zygote` forks them. `client` is what every process that can call has; `worker` and `executor` run user code.
`observer` is who looks on from outside: `snapshot` and `process_snapshot` are what it is told.

Rejected: workers as direct children of the node, by a double fork. It costs a second fork per worker, and the kernel's lifeline
(`mray._ipc.process`) already ties a worker to the node whoever its parent is.
"""
