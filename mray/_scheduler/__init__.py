"""Who gets what, when: decisions without I/O.

The node feeds `Scheduler.handle` with events (what happened, in the past tense) and carries out the instructions that come
back (what to do, in the imperative). There is no clock, socket, thread or randomness in here, so every decision is tested
without a process.

::

    events ──▶ Scheduler ──▶ instructions
               │  ├── DemandQueue    who waits for resources, one queue per scheduling class
               │  ├── ResourcePool   what the machine has, what is taken, which GPU by whom
               │  ├── Groups         placement groups: resources set aside, a pool for each bundle
               │  ├── CpuLoads       which CPUs have workers pinned to them
               │  ├── WorkerPool     processes: starting, idle (per environment and GPU past), in use
               ├── Works          drivers and detached actors: whose end is the end of which processes
               └──▶ Actors           names, handles, owners, restarts, causes of death

A *tenant* is what holds resources and a worker: a lease (a client pushes tasks through it) or an actor. A tenant first waits
for resources, then for a worker, then lives until it is returned or its worker dies.

Cost: an event touches what it names and the scheduling classes that wait for a resource it frees, so 100,000 queued demands cost
no more per event than one.

Rejected: reserving resources for large demands that small ones overtake. It wastes the machine while it waits, and Ray's
programs do not expect it.
"""
