"""The actor that holds the objects: it runs steps and returns their results.

Invariant: user code (operations, and the finalizers of targets) runs with no lock held.
"""

from __future__ import annotations

import importlib
import inspect
import pickle
import queue
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from mray._common.kept import os, socket
from mray._common.process_local import ProcessLocal
from mray.proxy import _namespace
from mray.proxy._coroutines import Coroutines
from mray.proxy._errors import Failure, VarReleasedError
from mray.proxy._inbox import Inbox
from mray.proxy._step import (
    FOREIGN,
    LITERAL,
    MODULE,
    NESTED,
    OPERATIONS,
    OTHER,
    SAME,
    STATEMENTS,
    At,
    ForeignAt,
    NamedModule,
    Place,
    Step,
    described,
)
from mray.proxy._targets import Target, Targets, client_of
from mray.proxy._tensor_transfer import TransferRef, brought, kept, passed, transferred
from mray.proxy._token import Tokens

#: by the id of its actor
here: ProcessLocal[weakref.WeakValueDictionary[str, Interpreter]] = ProcessLocal(weakref.WeakValueDictionary)

_GONE = "this variable's target does not exist: it was deleted by delete_unnamed_vars, or its creator died before it was created"

#: Requests for a result: the value; the value, which is then forgotten; only its completion; a token that keeps it; its awaited result.
#: TRANSFER is VALUE for another interpreter, which gets GPU tensors lent. READY wants only the completion of the stream's steps; TOKEN
#: waits for nothing.
VALUE, TAKE, DONE, TOKEN, AWAITED, READY, TRANSFER = "value", "take", "done", "token", "awaited", "ready", "lend"
#: (one of these, stream, number of the result, the last step of the asking stream)
Want = tuple[str, int, int, int]
#: Steps in transit: pickled already if they are of builtin types, which is the fastest for engines.
Sent = bytes | list[Step] | None


class Interpreter:
    def __init__(self, engine: str) -> None:
        self._engine = importlib.import_module(engine)
        self._id = str(self._engine.get_runtime_context().get_actor_id())
        self._host = socket.gethostname()
        self._inboxes: dict[int, Inbox] = {}
        self._lock = threading.Lock()
        self._targets = Targets()
        self._ended: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._tokens = Tokens(self._engine, self._ended.put)
        self._coroutines = Coroutines()
        self._namespace = _namespace.Namespace()
        self._clients_gone: set[int] = set()
        self._operations: dict[str, Callable[..., Any]] = {
            **OPERATIONS,
            "adopt": self._adopt,
            "named": self._namespace.get,
            "put": kept,
            "put_named": lambda name, value: self._namespace.put(name, kept(value)),
            "del_named": self._namespace.delete,
            "exec": self._namespace.execute,
            "pass": lambda value: passed(self._engine, value),
            "shown": self._shown,
            "await": self._coroutines.result_of,
            "anext": self._coroutines.next_of,
            "aenter": self._coroutines.enter,
            "aexit": self._coroutines.exit,
        }
        weakref.finalize(self, self._ended.put, None).atexit = False
        threading.Thread(target=_bury, args=(weakref.ref(self), self._ended), name="proxy ends", daemon=True).start()
        here.get()[self._id] = self

    # ------------------------------------------------------------------------------------ calls
    def serve(self, stream: int, first: int, steps: Sent, *want: Any) -> Any:
        """With `want` (a `Want`), wait for that result and return the value, or a `Failure`."""
        inbox = self._inboxes.get(stream)
        if inbox is None:
            inbox = self._inbox(stream)
        if steps is not None:
            inbox.deposit(first, pickle.loads(steps) if isinstance(steps, bytes) else steps)
        self._go_on(stream, inbox, inbox.begin())
        if not want:
            return None
        mode, wanted_stream, number, after = want
        if inbox.done < after:
            inbox.wait_done(after, lambda batch: self._go_on(stream, inbox, batch))
        return self._answer(stream, mode, (wanted_stream, number))

    def value(self, stream: int, first: int, steps: Sent, *want: Any) -> Any:
        """As `serve`, but raises what a step raised, for a ref that is given to users."""
        found = self.serve(stream, first, steps, *want)
        if type(found) is Failure:
            found.throw()
        return brought(self._engine, found)

    def open(self, client: int) -> list[Any]:
        return [self._tokens.make(("client", client))]

    def release(self, ends: Sequence[tuple[Place, Place, tuple[Place, ...]]]) -> None:
        """Release (target, holder, steps) as soon as the steps are done."""
        find, release = self._inboxes.get, self._targets.release
        for place, holder, uses in ends:
            for stream, number in uses:
                inbox = find(stream)
                if inbox is None or inbox.done < number:
                    self._park(uses, place, holder)
                    break
            else:
                release(place, holder)

    def call(self, target: Any, name: str, /, *args: Any, **kwargs: Any) -> Any:
        """Call a function for DAG nodes. Variables of this interpreter stand for their values."""
        values = [self.local(argument) for argument in args]
        named = {key: self.local(argument) for key, argument in kwargs.items()}
        target = self.local(target)
        return (getattr(target, name) if name else target)(*values, **named)

    def names(self) -> list[str]:
        return self._namespace.names()

    def delete_unnamed_vars(self) -> None:
        """A named target stays under its name."""
        self._targets.clear()

    def status(self) -> dict[str, Any]:
        return {
            "id": self._id,
            "host": self._host,
            "pid": os.getpid(),
            "variables": len(self._targets),
            "failed": self._targets.count_failed(),
            "names": self._namespace.names(),
            "clients": len({client_of(stream) for stream in self._inboxes} - self._clients_gone),
            "streams": len(self._inboxes),
        }

    def host(self) -> str:
        return self._host

    def _shown(self, value: Any) -> str:
        return f"Var@{self._host}[{self._id[:5]}]:{value!s}"

    def local(self, value: Any) -> Any:
        place = getattr(type(value), "_place_here", None)
        found = place(value, self._id) if place is not None else None
        if found is None:
            return value
        target = self._target(found)
        if target.failure is not None:
            target.failure.throw()
        return target.value

    # ------------------------------------------------------------------------------------ steps
    def _inbox(self, stream: int) -> Inbox:
        with self._lock:
            return self._inbox_locked(stream)

    def _inbox_locked(self, stream: int) -> Inbox:
        inbox = self._inboxes.get(stream)
        if inbox is None:
            inbox = self._inboxes[stream] = Inbox()
            inbox.closed = client_of(stream) in self._clients_gone
        return inbox

    def _run_batch(self, stream: int, inbox: Inbox, batch: list[Step]) -> list[Step] | None:
        number = inbox.done
        do, advanced = self._do, inbox.advanced
        for step in batch:
            number += 1
            do(stream, number, step)
            advanced(number)
        if inbox.parked:
            self._unpark(inbox)
        if client_of(stream) in self._clients_gone:
            self._targets.drop_client(client_of(stream))
        return inbox.proceed()

    def _do(self, stream: int, number: int, step: Step) -> None:
        operation, kinds, operands, names = step
        values: tuple[Any, ...] = ()
        value = failure = None
        try:
            values = self._values(stream, kinds, operands)
            if operation == "call" and not names:
                value = values[0](*values[1:])
            else:
                function = self._operations[operation]
                if names:
                    count = len(values) - len(names)
                    value = function(*values[:count], **dict(zip(names, values[count:], strict=True)))
                else:
                    value = function(*values)
        except _Inherited as inherited:
            failure = inherited.failure
            failure.is_question = False
        except BaseException as error:  # SystemExit of user code must not end the actor's thread
            text = f"step {number} of this thread's with {self._host}[{self._id[:5]}] failed: {described(operation, values, names)}"
            failure = Failure.of(error, text)
            failure.is_question = operation == "getattr"
        if operation in STATEMENTS:
            if failure is not None:
                self._targets.complain(stream, failure)
            return
        self._targets.add((stream, number), value, failure)

    def _values(self, stream: int, kinds: str, operands: tuple[Any, ...]) -> tuple[Any, ...]:
        if kinds == "v":
            return operands
        if kinds == "sv":  # most of a chain
            return self._value_of((stream, operands[0])), operands[1]
        values = []
        for kind, operand in zip(kinds, operands, strict=True):
            if kind == LITERAL:
                values.append(operand)
            elif kind == SAME:
                values.append(self._value_of((stream, operand)))
            elif kind == OTHER:
                values.append(self._value_of(operand))
            elif kind == NESTED:
                values.append(self._nested(operand))
            elif kind == FOREIGN:
                values.append(self._foreign(operand))
            elif kind == MODULE:
                values.append(importlib.import_module(operand))
        return tuple(values)

    def _nested(self, value: Any) -> Any:
        kind = type(value)
        if kind is At:
            return self._value_of(tuple(value))
        if kind is ForeignAt:
            return self._foreign(value.ref)
        if kind is NamedModule:
            return importlib.import_module(value.name)
        if kind is list or kind is tuple or kind is set:
            return kind(map(self._nested, value))
        if kind is dict:
            return {self._nested(key): self._nested(item) for key, item in value.items()}
        if kind is slice:
            return slice(self._nested(value.start), self._nested(value.stop), self._nested(value.step))
        return value

    def _foreign(self, ref: Any) -> Any:
        value = brought(self._engine, ref if type(ref) is TransferRef else self._engine.get(ref))
        if type(value) is Failure:
            raise _Inherited(value)
        return value

    def _value_of(self, place: Place) -> Any:
        target = self._targets.get(place)
        if target is None:
            target = self._target(place)
        if target.failure is not None:
            raise _Inherited(target.failure)
        return target.value

    def _target(self, place: Place) -> Target:
        stream, number = place
        inbox = self._inbox(stream)
        inbox.wait_done(number, lambda batch: self._go_on(stream, inbox, batch))
        target = self._targets.get(place)
        if target is None:
            raise VarReleasedError(_GONE)
        return target

    def _go_on(self, stream: int, inbox: Inbox, batch: list[Step] | None) -> None:
        while batch is not None:
            batch = self._run_batch(stream, inbox, batch)

    # ------------------------------------------------------------------------------------ answers
    def _answer(self, asking: int, mode: str, place: Place) -> Any:
        target = self._targets.get(place)
        if mode == READY:
            return self._targets.complaint_of(asking)
        try:
            if mode == TOKEN:
                return [self._give_token(place)]
            if target is None:
                target = self._target(place)
        except VarReleasedError as error:
            return Failure.of(error, f"the result of step {place[1]} is wanted of {self._host}[{self._id[:5]}]")
        if target.failure is not None:
            target.failure.seen = True
        if mode == TAKE:
            self._targets.release(place, place)
        if target.failure is not None:
            return target.failure
        complaint = self._targets.complaint_of(asking)
        if complaint is not None:
            return complaint
        if mode in (VALUE, TAKE):
            return target.value
        if mode == TRANSFER:
            return transferred(self._engine, target.value)
        if mode == AWAITED:
            return self._await(target.value)
        return None

    def _await(self, value: Any) -> Any:
        if not inspect.isawaitable(value):
            return value
        try:
            return self._coroutines.result_of(value)
        except BaseException as error:
            return Failure.of(error, f"a value of {self._host}[{self._id[:5]}] was awaited")

    # ------------------------------------------------------------------------------------ lifetimes
    def _give_token(self, place: Place) -> Any:
        key = ("token", place, object())
        self._hold(place, key)
        return self._tokens.make(key)

    def _adopt(self, stream: int, number: int, holder: Place, _token: Any) -> None:
        """Until now the token kept the target alive."""
        self._hold((stream, number), holder)

    def _hold(self, place: Place, holder: Any) -> None:
        inbox = self._inbox(place[0])
        if not self._targets.hold(place, holder, lambda: inbox.done < place[1] and not inbox.closed):
            raise VarReleasedError(_GONE)

    def _park(self, uses: tuple[Place, ...], place: Place, holder: Place) -> None:
        with self._lock:
            for at, (stream, number) in enumerate(uses):
                inbox = self._inbox_locked(stream)
                if inbox.done < number and not inbox.closed:
                    inbox.parked.append((uses[at:], place, holder))
                    # The stream may have passed the step before this was parked, and it checks only between batches.
                    if inbox.done < number:
                        return
                    inbox.parked.pop()
        self._targets.release(place, holder)

    def _unpark(self, inbox: Inbox) -> None:
        with self._lock:
            parked, inbox.parked = inbox.parked, []
        for uses, place, holder in parked:
            self._park(uses, place, holder)

    def bury(self, key: Any) -> None:
        if key[0] == "token":
            self._targets.release(key[1], key)
            return
        client = key[1]
        with self._lock:
            self._clients_gone.add(client)
            inboxes = [inbox for stream, inbox in self._inboxes.items() if client_of(stream) == client]
        for inbox in inboxes:
            inbox.close()
            self._unpark(inbox)
        with self._lock:
            # Recreated, and closed, if a result of theirs is asked for.
            for stream in [stream for stream, inbox in self._inboxes.items() if inbox.idle and client_of(stream) == client]:
                del self._inboxes[stream]
        self._targets.drop_client(client)


def _bury(interpreter: weakref.ref[Interpreter], ended: queue.SimpleQueue[Any]) -> None:
    """In a separate thread, since finalizers may take no locks."""
    while (key := ended.get()) is not None:
        alive = interpreter()
        if alive is not None:
            alive.bury(key)
        del alive


class _Inherited(Exception):
    """An operand is the outcome of a failed step."""

    def __init__(self, failure: Failure) -> None:
        super().__init__()
        self.failure = failure
