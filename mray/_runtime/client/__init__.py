"""The client of a driver or a worker: calls, their replies, and the errors of calls whose replies do not come.

::

    client: a process's connections (`mray._runtime.connections.endpoint`), and its parts:

    user's threads ──┬──▶ owner, borrowing, tensors: values that this process owns or borrows (`mray._runtime.objects`)
                     ├──▶ objects: `get` and `wait`, with awaiting for event loops ◀── replies
                     ├──▶ arguments, actors, leases, cancelling: calls ──────────────────┘
                     └──▶ wakeups: doorbells of other processes
"""
