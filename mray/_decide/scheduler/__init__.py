"""Scheduling decisions, without I/O.

The node feeds `Scheduler.handle` with events and carries out the instructions that it returns.

::

    events ──▶ Scheduler ──▶ instructions
               ├── DemandQueue    claimants that wait for resources, one queue per scheduling class
               ├── ResourcePool   the machine's resources and their holders, GPU by GPU
               ├── Groups         placement groups: reserved resources, a pool for each bundle
               ├── CpuLoads       how many workers are pinned to each CPU
               ├── WorkerPool     processes: starting, idle (per environment and GPUs), in use
               ├── LifetimeRoots  drivers and detached actors, and the processes that end with them
               └── Actors         names, handles, owners, restarts, causes of death

A *claimant* holds resources and a worker: a lease (a client pushes tasks through it) or an actor. It waits for resources, then for a
worker, then lives until it is returned or its worker dies.

Rejected: reserving resources for large demands that small ones overtake, which wastes the machine meanwhile.
"""
