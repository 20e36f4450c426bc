"""Decisions of a process that makes calls, without I/O.

The client (`mray._runtime.client`) feeds these state machines with events: a call was made, an argument has arrived, the node or a
worker has sent a message, a timer has expired. Each event returns instructions, which the client carries out in order.

::

    events ──┬▶ ActorQueue   calls to one actor, across restarts of its process      ──┬──▶ instructions
             ├▶ LeasePool    tasks of one scheduling class and their leased workers  ──┤
             ├▶ Stream       items of one generator, on their way to the reader      ──┤
             └▶ Borrower     objects and actor handles that this process borrows     ──┘

A `Ledger` records what this process has lent; it decides nothing.

Each machine has `validate`, which asserts its invariants, and a `event_log`, the last events, which the error of an invalid transition
prints.

====================  ====================================================================================================
event                 a method of a machine, named in the past tense
instruction           an action for the client, in the imperative: send a call, fail it, connect
producer, reader      the generator in its worker; the iterator in the caller that takes the items
promise               the client's record of an item whose ref was returned before the item arrived
owner, borrower       the process that created an object; a process that holds a ref of it
account               what one process has borrowed
acknowledgement       the owner's message that it counts a borrow; the process that passed the ref on may then drop it
link                  an open connection as the deciders see it: its unanswered calls, and whether it is closed
lease                 a worker that the node has granted to one pool
pipeline              tasks that were pushed to one leased worker and are unanswered
====================  ====================================================================================================
"""
