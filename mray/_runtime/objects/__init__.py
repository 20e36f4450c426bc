"""The values of a process, and those that it borrows.

`owner` writes values into its `memory`, natively segments, and frees them; `borrowing` is the protocol between an owner and the processes
that hold its refs: a `Ledger` on one side, a `Borrower` on the other (`mray._decide.caller`); `unhandled_errors` logs errors that the
program never reads. Tensors that stay where they were made are behind a contract (`tensor_contract`), which `mray._gpu` fulfils.

====================  ====================================================================================================
owner                 the process that made a ref: it keeps the value, or knows its segment, until the last ref is gone
borrower              a process that holds a ref of another process's object; its end returns all that it has borrowed
entry                 a process's record of one object: its value or segment, its waiters
pin                   refs inside a reply, kept by its worker until the receiver has borrowed them
token                 keeps the handles of one actor alive in a process, as a ref does an object
holder                the process that keeps the tensors of an object with form TENSORS; not always its owner
====================  ====================================================================================================
"""
