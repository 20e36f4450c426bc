"""The values that a process owns, and those that it borrows.

`owner` writes values into its `memory`, natively segments, and frees them; `borrowing` is the protocol between an owner and the
processes that hold its refs: a `Ledger` on one side, a `Borrower` on the other (`mray._decide.caller`).

====================  ====================================================================================================
owner                 the process that created a ref: it has the value, or its segment's name, until the last ref is released
borrower              a process that holds a ref of another process's object; its end returns all that it has borrowed
entry                 a process's record of one object: its value or segment, its waiters
pin                   refs inside a reply, held by its worker until the receiver has borrowed them
token                 keeps the handles of one actor alive in a process, as a ref does an object
holder                the process that has the tensors of an object with form TENSORS; not always its owner
====================  ====================================================================================================
"""
