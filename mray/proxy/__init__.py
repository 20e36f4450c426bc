r"""Remote variables: a process that holds objects, and variables that stand for them anywhere.

This package runs on any engine with Ray's API: it uses only what `mray` and Ray have in common, and is given the module
(``RemoteInterpreterFactory(mray)``).

::

    a process that uses variables                         the interpreter (an actor with many threads)
    Var -- RemoteReference                                 Inbox of a stream -- runs steps in order -- Targets
              \                                            ^                                            |  holders
    thread -- StepStream -- steps (operation, operands) --+                                            |
              \ Sender sends steps without a waiter        Tokens: notice when a ref has ended --------+

Every operation is a step. The client numbers the steps of a thread's *stream* and so knows a result's name, (stream, number), before
the result exists: it waits only when the program wants a value. The interpreter runs the steps of a stream in order on any thread of
the actor, and streams are independent: a step that waits, even for another interpreter that calls back, delays only its own stream. So
there is no deadlock; up to ``max_concurrency`` (256) steps may wait at the same time.

A value of another interpreter travels by a ref of the engine, from process to process, as it was at the step that passed it on; GPU
tensors stay on the GPU. Dependent steps inherit errors, and the first use of a variable raises the original error, with `StepFailed`
as its cause. An error that no variable shows (of an assignment, or of a call whose result was dropped) is raised by the thread's next
use that waits.

Lifetimes. A *target*, an object at the interpreter, has *holders*: the step by which a process came to hold it, ended by a message of
that process when the steps that use it are done; or a *token*, an object of the engine that the interpreter owns. One is given to each
process that connects (its death ends the token, and with it all that the process held) and one is put into each pickled variable (so
the engine counts messages and objects that carry it). So no count is shared, and a death needs no protocol.

Rejected: an async actor, which needs two thread switches more for each step. Counting copies in messages, as ray-proxy does: the count
is wrong after the first death. A round trip per attribute.
"""

from __future__ import annotations

from mray.proxy._errors import InterpreterDiedError, RemoteError, StepFailed, VarReleasedError
from mray.proxy._factory import RemoteInterpreterFactory
from mray.proxy._magic import register as load_ipython_extension
from mray.proxy._var import RemoteInterpreter, Var

__all__ = [
    "IRemoteInterpreter",
    "InterpreterDiedError",
    "RemoteError",
    "RemoteInterpreter",
    "RemoteInterpreterFactory",
    "StepFailed",
    "Var",
    "VarReleasedError",
    "load_ipython_extension",
]

IRemoteInterpreter = RemoteInterpreter
