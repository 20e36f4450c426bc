"""Processes of a session and how they work together: driver, node, zygote, workers.

::

    driver: session, client ──▶ node: node, supervisor, (scheduler) ──▶ zygote ──▶ worker: worker, executor, client
        └────────────── calls, straight to the worker ───────────────────────────────▶ ┘

Eight rooms; imports go down only:

::

    session                                    starting and ending a session: the driver's side
    worker   environment   node                running user code | runtime environments | leases, actors, deaths
    client                                     calls and replies
    objects                                    values, owned and borrowed
    connections                                messages to the node and to peers, and how connections end
    processes                                  starting and supervising mray's own interpreters

Rejected: one kind of session that every program joins, as on Ray. A private session needs no name, no start and no stop, and its workers
are ready before its driver has joined.

Rejected: workers as direct children of the node, by a double fork. It costs a second fork per worker, and the kernel's lifeline
(`mray._ipc.process`) already ties a worker to the node.
"""
