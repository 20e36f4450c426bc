"""Decisions of a process that makes calls, without I/O.

The client (`mray._runtime.client`) carries out the instructions of an event in order.

::

    events ──┬▶ ActorQueue   calls to one actor, across restarts of its process      ──┬──▶ instructions
             ├▶ LeasePool    tasks of one scheduling class and their leased workers  ──┤
             ├▶ Stream       items of one generator, on their way to the reader      ──┤
             └▶ Borrower     objects and actor handles that this process borrows     ──┘

A `Ledger` records what this process has lent; it decides nothing.

Each machine has `validate`, which asserts its invariants, and `event_log`, the last events, which the error of an invalid transition
prints.
"""
