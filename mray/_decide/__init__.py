"""Decisions without I/O: where things run (`scheduler`, in the node), and what calls do next (`caller`, in each process that calls).

::

    events (past tense) ──▶ state machines of one room ──▶ instructions (imperative), carried out by the process that asked

No clock, connection, thread, lock or randomness is in here (a contract of imports), so every decision is tested without a process. The two
rooms know nothing of each other: the node and its callers meet in messages.
"""
