"""Processes of a session and how they work together: driver, node, zygote, workers.

::

    driver: session, client ──▶ node: node, supervisor, (scheduler) ──▶ zygote ──▶ worker: worker, executor, client
        └────────────── calls, straight to the worker ───────────────────────────────▶ ┘

Eight rooms, each with a page of its own; an arrow says who imports whom:

::

    session ──▶ environment, node, observe ──▶ processes
       └──────────────┬─────────┘
    worker ──▶ client ──▶ objects

`session` starts and ends it all for a driver; `processes` is how interpreters of ours are started and watched; the `node` answers and
decides; the `client` is what every process that can call has, with `objects` of its own and borrowed ones; the `worker` runs user code;
`environment` prepares it; `observe` looks on from outside.

Rejected: one kind of session that everybody joins, as Ray has it. Most programs want to be alone with their machine, and to leave
nothing; a private session needs no name, no start and no stop, and its workers are there before its driver has said hello.

Rejected: workers as direct children of the node, by a double fork. It costs a second fork per worker, and the kernel's lifeline
(`mray._ipc.process`) already ties a worker to the node whoever its parent is.
"""
