"""What every process has that can call, a driver or a worker: calls, their replies, and the errors of what does not come back.

::

    user's threads ──▶ client ──┬── calls, actor_calls, leases, arguments, cancelling, streams, awaiting
                                ├── values, whose owner or borrower this process is (`mray._runtime.objects`)
                                └── the node and the peers (`mray._runtime.connections`)

A call is a record in `calls`; `arguments` packs what it is given, `actor_calls` has the queue of each actor, `leases` the workers that are
rented for tasks, `reconstruction` makes a lost value again by calling its task. `failed_calls` are remembered for listings;
`announcements` and `unschedulable` tell the user what no ref tells. `wakeups` are doorbells across processes, `descriptors` the file
descriptors that ring them.
"""
