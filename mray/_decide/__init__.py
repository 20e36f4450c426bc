"""Decisions without I/O: where work runs (`scheduler`, in the node), and what calls do next (`caller`, in each process that calls).

::

    events (past tense) ──▶ state machines of one room ──▶ instructions (imperative), carried out by the process that asked

No clock, connection, thread, lock or randomness is in here (a contract of imports). The two rooms know nothing of each other.

Three warm paths ask a machine whether its decision is the usual one, and act without an instruction:

    ActorCaller.submit      sends a call       (ActorQueue.sends_directly, written out)        in place of ActorQueue.submitted -> Send
    TaskPool.submit         pushes a task      (LeasePool.immediate_lease, LeasePool.pushed)   in place of LeasePool.submitted -> Push
    StreamReader.arrived    stores items       (Stream.stores_directly)                        in place of Stream.arrived -> Store
"""
