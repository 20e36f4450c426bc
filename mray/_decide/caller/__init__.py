"""Decisions of a process that calls, without I/O.

Drivers and workers call alike. The client (`mray._runtime.client`) feeds these state machines with events: a user has called, an argument
has come, the node or a worker has said something, a time has passed. Each event returns the instructions that follow from it, in order; the
client carries them out. There is no clock, connection, thread or lock in here, so every decision is tested without a process.

::

    events ──┬▶ ActorQueue   the calls to one actor, which follow it from process to process         ──┬──▶ instructions
             ├▶ LeasePool    the tasks of one scheduling class, and the workers leased for them      ──┤
             ├▶ Stream       the items of one generator, on their way to the reader                  ──┤
             └▶ Borrower     the objects of other processes that this one holds, and its handles     ──┘

The things that this process has lent to others stand in ledgers (`Ledger`), which decide nothing.

Every machine has `validate`, which asserts its invariants, and a `story`: its last events, told by the error of an event that its state
does not allow.

====================  ====================================================================================================
event                 a method of a machine, named in the past tense: a call, a message, an end, a time that has passed
instruction           a thing for the client to do, in the imperative: send a call, fail it, connect
producer, reader      the generator in its worker; the user's iterator, which takes the items one by one
promise               the client's record of an item whose ref was given out before it has arrived
owner, borrower       the process that made an object; one that holds a ref of it
account               what one process has of a ledger's things
acknowledgement       the owner's word that a borrow is counted; the process that has passed the ref on may let it go
link                  an open connection as far as decisions go: the calls sent over it that are not answered, and whether it has ended
lease                 a worker that the node has granted for the tasks of one pool
pipeline              tasks that were pushed to one leased worker and not answered
====================  ====================================================================================================
"""
