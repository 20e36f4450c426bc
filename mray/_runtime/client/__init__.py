"""The client of a driver or a worker: calls, their replies, and the errors of calls whose replies do not come.

::

    client: a process's connections (`mray._runtime.connections.endpoint`), and its parts:

    user's threads ──┬──▶ owner, borrowing, tensors: values that this process owns or borrows (`mray._runtime.objects`)
                     ├──▶ objects: `get` and `wait`, with awaiting for event loops ◀── replies
                     ├──▶ arguments, actors, leases, cancelling: calls ──────────────────┘
                     └──▶ wakeups: doorbells of other processes

====================  ====================================================================================================
call                  a task or a method call, as its caller remembers it until the reply arrives
pool                  all tasks with the same resources and environment, and the leases that run them
lease                 a worker that the node has granted for the tasks of one pool
pipeline              the unanswered tasks that were pushed to one leased worker
attempt               one run of a call; a call with retries left is sent again after a failed one
recipe                the record of a call that can recompute its lost value
stream                the items of a remote generator on their way to its reader
doorbell              an eventfd, or a semaphore, that wakes a process when shared memory has changed
====================  ====================================================================================================
"""
