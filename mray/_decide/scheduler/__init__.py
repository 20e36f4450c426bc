"""Scheduling decisions, without I/O.

The node feeds `Scheduler.handle` with events (in the past tense) and carries out the instructions that come back (in the imperative). There
is no clock, socket, thread or randomness in here, so every decision is tested without a process.

::

    events ──▶ Scheduler ──▶ instructions
               ├── DemandQueue    tenants that wait for resources, one queue per scheduling class
               ├── ResourcePool   the machine's resources, their holders, GPU by GPU
               ├── Groups         placement groups: resources set aside, a pool for each bundle
               ├── CpuLoads       which CPUs have workers pinned to them
               ├── WorkerPool     processes: starting, idle (per environment and GPU past), in use
               ├── LifetimeRoots  drivers and detached actors: whose end is the end of which processes
               └── Actors         names, handles, owners, restarts, causes of death

A *tenant* holds resources and a worker: a lease (a client pushes tasks through it) or an actor. A tenant first waits
for resources, then for a worker, then lives until it is returned or its worker dies.

====================  ====================================================================================================
event                 a fact, in the past tense: a message of a process, an end, a time that has passed
instruction           a thing for the node to do, in the imperative: tell a process, start or kill a worker
record                the state of a member, worker, lease, actor or group
demand                the resources, environment and placement that a request asks for
scheduling class      demands that are interchangeable, and wait in one queue
holding               the resources that one tenant has taken
lifetime root         the driver or detached actor that a process works for, and with which it ends
bundle                resources of a placement group that one tenant at a time, or several, draw from
dead record           a record that is kept for listings after the end; a tombstone keeps only the cause
====================  ====================================================================================================

Cost: an event touches what it names and the scheduling classes that wait for a resource it frees, so 100,000 queued demands cost
no more per event than one.

Rejected: reserving resources for large demands that small ones overtake. It wastes the machine while it waits, and Ray's
programs do not expect it.
"""
