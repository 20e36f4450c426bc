"""The engine in one process: the whole program runs in the driver's process, one thread at a time, in an order that a seed fixes.

::

    the user's verbs ──▶ LocalBackend ──▶ NativeBackend of the process that the calling thread belongs to
                         (a scheduling          │ client, worker, graphs: the native runtime, on a platform of four seams
                          point each)           ▼
                         RunToken ◀──── clock · SimulatedProcess · LocalTransport: a message is a callback of the token · HeapMemory
                                                │
                                            LocalNode: the native scheduler, workers on simulated threads

Each task runs in a *simulated process* (`local_process`), each actor is one: a native client and worker, whose main thread is a
*simulated thread*. `run_token` decides which one runs, by a random generator with the seed `MRAY_LOCAL_SEED`. `patches` and `locks`
replace further functions: `time.sleep`, conditions and locks of `threading`, `os.getpid`, `os._exit`, `os.kill`, `atexit.register`.

Above the seams (`mray._runtime.client.platform`) is the native engine's code. Differences:

* Only one simulated thread runs, until a call of mray or of a function that `patches` replaces. A task that computes forever blocks all
  others, and cannot be cancelled or killed until its next scheduling point; a process that is killed there may still run ``finally``
  clauses.
* All processes share modules, their globals and the environment. Functions and classes of ``__main__`` still travel by value, and
  variables of ``runtime_env`` are set while a simulated thread of that process runs. Fields that need another interpreter are refused at
  the call.
* A simulated process has a pid that the kernel does not know: `os.kill` ends it. A signal of another program, or a crash of
  compiled code, ends the program.
* Memory is unlimited, and output is not captured.
* A user thread waits for the run token when it calls mray, and has it for that call. The machine determines when, and so the order.

Rejected: a separate implementation of the API. Tests in one process would not test the code that runs in many. A random choice at
each message: the choice of the sending thread already varies the order.
"""

from __future__ import annotations

from mray._backends.local.local_backend import LocalBackend

__all__ = ["LocalBackend", "start"]

start = LocalBackend.start
