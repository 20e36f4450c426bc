"""The engine in one process: the same program in the driver's own process, one thing at a time, in an order that a seed fixes.

For tests and for looking closely: a debugger, a coverage run or a profiler sees all that runs, and a race that one order shows can be shown
again. No process is started, no socket opened, no name made in shared memory.

::

    the user's verbs ──▶ LocalBackend ──▶ NativeBackend of the process that the calling thread belongs to
                         (a scheduling          │ client, calls, leases, executor, lanes, graphs: the native runtime
                          point each)           ▼
                            Baton ◀──── LocalReactor, LocalConnection: a message is a word to the baton
                                                │
                                            LocalNode: the native scheduler, and workers on strands

Each task runs in a *simulated process*, each actor is one: a native client and worker (`client`, `worker`) whose main thread is a *strand*.
`baton` says which strand runs, by a random generator with the seed `MRAY_LOCAL_SEED`, and keeps the clock. `transport` carries messages,
`node` stands for the node, `memory` for the object store, `environment` for a process's variables. `lanes`, `loops` and `graphs` are for
actors that do several things at once and for compiled graphs. `patches` and `locks` are what else becomes a scheduling point or belongs to
a simulated process: `time.sleep`, conditions and locks of `threading`, `os.getpid`, `os._exit`, `os.kill`, `atexit.register`.

What is the same: everything above the transport is the native engine's own code, so copying by pickling, errors, ownership, ordering,
retries, restarts, resources and their texts are. What differs, and why:

* Only one strand runs, and gives way at mray's calls and at what `patches` replaces. What computes for ever holds everybody up, and cannot
  be cancelled or killed until its next scheduling point; a process that is killed there may still run ``finally`` clauses on its way out.
* Modules, their globals and the environment are everybody's. Functions and classes of ``__main__`` still travel by value, and variables of
  ``runtime_env`` are set while a strand of that process runs. Fields that need another interpreter are refused at the call.
* A simulated process has a pid of its own that the kernel does not know: `os.kill` ends it. A signal of another program's, or a crash of
  compiled code, ends the program.
* There is no limit of memory, nothing is spilled, and no title of a process shown. Output goes straight out.
* A thread that the user starts is no strand: it waits for the baton when it calls mray, for the time of that call. When it does so is the
  machine's business, and so is the order then.

Rejected: an implementation of the API of its own, with a table of objects and a queue of calls. It would be smaller than what stands below
the verbs, and wrong in a thousand places that the native runtime has right; and what is tested in one process would not be what runs
in many. Rejected as well: to choose at each message, too. The order of messages that are under way to one process is one more thing that
may differ natively; strands give it the same freedom, for who sends is chosen.
"""

from __future__ import annotations

from mray._backends.local.backend import LocalBackend

__all__ = ["LocalBackend"]
