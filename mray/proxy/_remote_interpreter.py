"""`RemoteInterpreter`: asks an interpreter, by the streams of the threads of this process.

In any process. A result that a method returns as a `Var` is not waited for; everything else is.
"""

from __future__ import annotations

import importlib
import itertools
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from mray._common.process_local import ProcessLocal
from mray.proxy._connection import InterpreterConnection
from mray.proxy._interpreter import DONE, READY
from mray.proxy._remote_reference import RemoteReference, reference_of
from mray.proxy._step import Place
from mray.proxy._step_stream import IMMUTABLE, StepStream, new_place
from mray.proxy._targets import STREAM_BITS
from mray.proxy._var import IRemoteInterpreter, Var, make_var


class RemoteInterpreter(IRemoteInterpreter):
    """An interpreter behind an actor of the engine. One object per interpreter and process; any thread.

    It lives while anything in any process has this or a `Var` of it, unless it was made with ``lifetime="detached"``. Calls that wait for
    it when it dies raise `InterpreterDiedError`.
    """

    def __init__(self, connection: InterpreterConnection) -> None:
        self.connection = connection
        self._streams = threading.local()
        self._unused: deque[StepStream] = deque()
        self._numbers = itertools.count()

    # ------------------------------------------------------------------------------------ streams
    def stream(self) -> StepStream:
        """This thread's."""
        try:
            stream: StepStream = self._streams.stream
            if not stream.sending:
                return stream
            loans: list[_Loan] = self._streams.loans
        except AttributeError:
            loans = self._streams.loans = []
        for loan in loans:
            if not loan.stream.sending:
                return loan.stream
        loans.append(_Loan(self._unused, self._new_stream))
        self._streams.stream = loans[0].stream
        return loans[-1].stream

    def _new_stream(self) -> StepStream:
        return StepStream(self.connection, self.connection.client << STREAM_BITS | next(self._numbers))

    def var_of(self, reference: RemoteReference[Any]) -> Var:
        return make_var(reference)

    def do(self, operation: str, /, *operands: Any, **kwargs: Any) -> Var:
        stream = self.stream()
        number = stream.add(operation, operands, kwargs)
        place = (stream.id, number)
        return make_var(RemoteReference(self, stream, place, place))

    def do_simple(self, operation: str, var: Var, literal: Any) -> Var:
        """As `do`, quicker where it can be."""
        stream, reference = self.stream(), reference_of(var)
        if reference.place[0] != stream.id or type(literal) not in IMMUTABLE:
            return self.do(operation, var, literal)
        place = (stream.id, stream.add_simple(operation, reference, literal))
        return make_var(RemoteReference(self, stream, place, place))

    def do_now(self, operation: str, *operands: Any) -> Var:
        """As `do`, but raises at once what the operation raises."""
        made = self.do(operation, *operands)
        stream = self.stream()
        stream.answer(stream.ask((DONE, *reference_of(made).place)))
        return made

    def state(self, operation: str, *operands: Any) -> None:
        """A step without a result."""
        self.stream().add(operation, operands)

    def ask(self, operation: str, *operands: Any) -> Any:
        """The value of an operation's result, which does not stay there."""
        return self.stream().get(operation, *operands)

    def var(self, id: Place | Var) -> Var:
        return id if isinstance(id, Var) else self.adopt(tuple(id), None)  # type: ignore[arg-type]

    def adopt(self, place: Place, token: Any) -> Var:
        """The variable of a target that something else keeps alive until this does."""
        stream = self.stream()
        holder = new_place(stream)
        stream.add("adopt", (*place, holder, token))
        return make_var(RemoteReference(self, stream, place, holder, token))

    # ------------------------------------------------------------------------------------ objects
    @property
    def id(self) -> str:
        return self.connection.id

    def put(self, item: Any) -> Var:
        return self.do("put", item)

    def put_named(self, name: str, item: Any) -> Var:
        return self.do_now("put_named", name, item)

    def get_named(self, name: str) -> Var:
        return self.do_now("named", name)

    def get_named_instances(self) -> dict[str, Var]:
        return {name: self.get_named(name) for name in self.instance_names()}

    def del_named(self, name: str) -> None:
        self.ask("del_named", name)

    def wait(self) -> None:
        """Wait until everything that this thread has asked for is done. Raises what failed, if no variable shows it."""
        stream = self.stream()
        stream.answer(stream.ask((READY, 0, -1)))

    def instance_names(self) -> list[str]:
        self.wait()
        return list(self.connection.do("names"))

    def run(self, func: Any, args: Any = None, kwargs: Any = None) -> Var:
        return self.do("call", func, *(args or ()), **(kwargs or {}))

    def execute(self, source: str) -> Var:
        """Run a cell of Python there. Its globals are the named instances. The value of its last line, if that is an expression."""
        return self.do_now("exec", source)

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Steps of this thread inside go in one message, at the end or when a result is wanted."""
        stream = self.stream()
        stream.batch(1)
        try:
            yield
        finally:
            stream.batch(-1)

    # ------------------------------------------------------------------------------------ the process
    def delete_unnamed_vars(self) -> None:
        self.wait()
        self.connection.do("delete_unnamed_vars")

    def get_host(self) -> str:
        return str(self.connection.do("host"))

    def status(self) -> dict[str, Any]:
        return dict(self.connection.do("status"))

    def destroy(self) -> None:
        self.connection.destroy()

    def __repr__(self) -> str:
        name = f" {self.connection.name!r}" if self.connection.name else ""
        return f"<RemoteInterpreter{name} [{self.id[:5]}]>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemoteInterpreter) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __reduce__(self) -> tuple[Any, ...]:
        connection = self.connection
        return connect, (connection.engine.__name__, connection.handle, connection.name)


class _Loan:
    """A stream for as long as a thread lives; then the next new thread has it."""

    __slots__ = ("_unused", "stream")

    def __init__(self, unused: deque[StepStream], make: Callable[[], StepStream]) -> None:
        self._unused = unused
        try:
            self.stream = unused.pop()
        except IndexError:
            self.stream = make()

    def __del__(self) -> None:
        self._unused.append(self.stream)


_known: ProcessLocal[weakref.WeakValueDictionary[str, RemoteInterpreter]] = ProcessLocal(weakref.WeakValueDictionary)
_knowing = threading.Lock()


def connect(engine: str, handle: Any, name: str | None = None) -> RemoteInterpreter:
    """The interpreter behind an actor's handle, for this process."""
    actor_id = handle._actor_id.hex()  # noqa: SLF001  (Ray's name for it, on any engine)
    known = _known.get().get(actor_id)
    if known is None:
        # Without the lock: it calls the engine. Of two threads the first to be done is right, and the other's connection ends again.
        made = RemoteInterpreter(InterpreterConnection(importlib.import_module(engine), handle, actor_id, name))
        with _knowing:
            known = _known.get().setdefault(actor_id, made)
    return known
