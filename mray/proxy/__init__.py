r"""Remote variables: a process that holds objects, and variables that stand for them anywhere.

For users who drive a process with a GPU from a notebook or a script, on any engine with Ray's API: this package uses what `mray` and Ray
have in common, and is given the module (``RemoteInterpreterFactory(mray)``).

::

    a process that uses variables                         the interpreter (an actor with many threads)
    Var -- RemoteReference                                 Inbox of a stream -- runs steps in order -- Targets
              \                                            ^                                            |  holders
    thread -- StepStream -- steps (operation, operands) --+                                            |
              \ Sender sends steps without a waiter        Tokens: notice when a ref has ended --------+

Every operation is a step. The client numbers the steps of a thread's *stream* and so knows a result's name, (stream, number), before it is
there: nothing is waited for until somebody wants a value. The interpreter does the steps of a stream in order on whichever thread of the
actor comes, and streams know nothing of each other: what waits, be it for another interpreter that calls back, holds up its own stream
alone. That is why there is no deadlock; how many may wait at once is ``max_concurrency`` (256). In the interpreter itself a variable is
used directly.

A value of another interpreter goes there by a ref of the engine, from process to process, as it was at the step that passed it on; tensors
of GPUs stay on the GPU (`_tensor_transfer`). Errors are outcomes like values: steps that depend on one inherit it, and the first use of a
variable raises it as what it is, `StepFailed` with the step and the remote traceback as its cause. One that no variable shows (an
assignment, a call whose result was dropped) is raised by the thread's next use that waits.

Lifetimes. A target has *holders*: the step by which a process came to hold it, ended by a message of that process when the steps that use
it are done; or a *token*. A token is an object of the engine that the interpreter owns, given to each process that connects (when that
process dies, its refs go, the token ends and with it all that the process held) and put into each pickled variable (so messages, objects
and whoever got them are counted by the engine). So no count of ours is shared, and a death needs no protocol of ours.

Attributes. ``v.name`` waits for nothing, but `hasattr`, `getattr` and other code in C get the `AttributeError` at once: the instruction
that the caller is at tells them apart (`_lookup`).

====================  ====================================================================================================
interpreter           the actor that holds the objects
variable              stands for an object of the interpreter; it may be pickled
target                an object at the interpreter, by the place of the step that made it
step                  one operation with its operands
step stream           the steps that one thread asks of one interpreter, in order
inbox                 where the steps of a stream arrive at the interpreter
remote reference      keeps a target alive as long as a variable of this process stands for it
holder, token         an entry that keeps a target alive; a ref of the engine whose end ends such entries
sender                a thread that sends steps nobody waits for
transfer              a value on its way to another interpreter, as it was at its step
====================  ====================================================================================================

Rejected: an async actor. Its loop would have to pass each step to a thread and the result back, two switches more than a thread of the
actor needs. Counting copies in messages, as ray-proxy does: a count that is wrong after the first death. A round trip per attribute.
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

#: The name by which programs annotate one.
IRemoteInterpreter = RemoteInterpreter
