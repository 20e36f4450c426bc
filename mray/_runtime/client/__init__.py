"""What every process has that can call, a driver or a worker: calls, their replies, and the deaths of those who were called.

::

    user's threads ──▶ client ──┬── calls, leases, cancelling, streams, awaiting
                                ├── objects, whose owner or borrower this process is (`mray._runtime.objects`)
                                ├── the node: leases, actors, names
                                └── peers: one connection each way at most

`client` joins a session (`joining`) and enters each message at `dispatch`. `calls` has the records of calls and the queue of each actor,
`leases` the workers that are rented for tasks. When a connection ends (`hangups`, `refusals`, `protocol_errors`) `deaths` says who died
and how, and everything that waited for it fails. `announcements`, `unheard_errors` and `unschedulable` tell the user what no ref tells.
`wakeups` are doorbells across processes, `descriptors` the file descriptors that ring them.
"""
