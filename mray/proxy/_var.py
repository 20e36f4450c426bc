"""`Var`: stands for an object of an interpreter, which runs every operation on it. `RemoteInterpreter`: the interpreter as users hold it.

Operators, attributes, items and calls return new variables immediately; what Python needs itself (truth, length, items of a loop, text)
is waited for, and raises the error of any earlier step. Operators are generated from the table in `mray.proxy._operators`.
"""

from __future__ import annotations

import importlib
import itertools
import threading
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

from mray._common.bridge import in_thread
from mray._common.process_local import ProcessLocal
from mray.proxy._connection import InterpreterConnection
from mray.proxy._errors import portable
from mray.proxy._interpreter import AWAITED, DONE, READY, VALUE, Interpreter
from mray.proxy._lookup import wants_answer
from mray.proxy._operators import ANSWERED, BINARY, COMPARISONS, IN_PLACE, UNARY, dunder
from mray.proxy._step import CHUNK, Place
from mray.proxy._step_stream import IMMUTABLE, RemoteReference, StepStream, Variable, new_place, reference_of
from mray.proxy._targets import STREAM_BITS

#: Protocols that expose memory of this process, which a variable has not.
_MEMORY = frozenset(
    {"__array_interface__", "__array_struct__", "__cuda_array_interface__", "__dlpack__", "__dlpack_device__", "__buffer__"}
)


class RemoteInterpreter:
    """A process that holds objects for others: ``env.put(x)`` is a `Var`, which stands for the object there.

    One object per interpreter and process; any thread. It lives while any process has this or a `Var` of it, unless it was created with
    ``lifetime="detached"``. Calls that wait for it when it dies raise `InterpreterDiedError`. Methods that return a `Var` do not wait
    for the result, except `put_named`, `get_named` and `execute`; all others do.
    """

    def __init__(self, connection: InterpreterConnection) -> None:
        self.connection = connection
        self._streams = threading.local()
        self._unused: deque[StepStream] = deque()
        self._numbers = itertools.count()

    @property
    def id(self) -> str:
        """Its actor's id, equal in all processes."""
        return self.connection.id

    # ------------------------------------------------------------------------------------ objects
    def put(self, item: Any) -> Var:
        """A variable of a value that is sent there; a module is imported there, a function may be a closure."""
        return self.do("put", item)

    def put_named(self, name: str, item: Any) -> Var:
        """As `put`, under a name that keeps it until `del_named` or the interpreter's end. Waits until it is there."""
        return self.do_now("put_named", name, item)

    def get_named(self, name: str) -> Var:
        """The variable of a named instance. Raises KeyError if there is none."""
        return self.do_now("named", name)

    def get_named_instances(self) -> dict[str, Var]:
        """Variables of all named instances, by name."""
        return {name: self.get_named(name) for name in self.instance_names()}

    def del_named(self, name: str) -> None:
        """Remove a name; variables keep its object. Raises KeyError if there is none."""
        self.ask("del_named", name)

    def instance_names(self) -> list[str]:
        """The names, in the order of their creation."""
        self.wait()
        return self.connection.do(Interpreter.names)

    def run(self, func: Any, args: Any = None, kwargs: Any = None) -> Var:
        """Call a function there. Variables among the arguments stand for their values."""
        return self.do("call", func, *(args or ()), **(kwargs or {}))

    def function(self, func: Callable[..., Any]) -> Var:
        """A decorator: the function lives there, and so do the results of its calls."""
        return self.put(func)

    def module(self, name: str) -> Var:
        """The module of this name, imported there."""
        return self.do("module", name)

    import_ = module

    def execute(self, source: str) -> Var:
        """Run a cell of Python there, with the named instances as globals. Returns the value of its last line, if that is an expression."""
        return self.do_now("exec", source)

    def wait(self) -> None:
        """Wait until all steps of this thread are done. Raises an error that no variable shows."""
        stream = self.stream()
        stream.answer(stream.ask((READY, 0, -1)))

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Send this thread's steps of the block in one message, at the end or when a result is wanted."""
        stream = self.stream()
        stream.batch(1)
        try:
            yield
        finally:
            stream.batch(-1)

    # ------------------------------------------------------------------------------------ the process
    def delete_unnamed_vars(self) -> None:
        """Forget all objects without a name. Their variables raise `VarReleasedError` afterwards."""
        self.wait()
        self.connection.do(Interpreter.delete_unnamed_vars)

    def get_host(self) -> str:
        """The name of the machine."""
        return self.connection.do(Interpreter.host)

    def status(self) -> dict[str, Any]:
        """A summary: id, host, pid, number of variables, names, clients and streams."""
        return self.connection.do(Interpreter.status)

    def destroy(self) -> None:
        """End the process and all that it holds."""
        self.connection.destroy()

    def __getitem__(self, name: str) -> Var:
        return self.get_named(name)

    def __setitem__(self, name: str, value: Any) -> None:
        self.put_named(name, value)

    def __delitem__(self, name: str) -> None:
        self.del_named(name)

    def __contains__(self, name: object) -> bool:
        return name in self.instance_names()

    def put_if_needed(self, item: Any) -> Var:
        """The item, if it is a variable; else a variable of it."""
        return item if isinstance(item, Var) else self.put(item)

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

    # ------------------------------------------------------------------------------------ by id
    def var(self, id: Place | Var) -> Var:
        """The variable of an id, which was some live variable's `id`."""
        return id if isinstance(id, Var) else self.adopt(tuple(id), None)  # type: ignore[arg-type]

    def call_id(self, id: Any, args: Any = None, kwargs: Any = None) -> Var:
        return self.var(id)(*(args or ()), **(kwargs or {}))

    def method_call_id(self, id: Any, method: str, args: Any = None, kwargs: Any = None) -> Var:
        return self.attr_id(id, method)(*(args or ()), **(kwargs or {}))

    def operator_call_id(self, id: Any, operator: str, *args: Any) -> Var:
        return self.method_call_id(id, operator, args)

    def attr_id(self, id: Any, item: str) -> Var:
        return self.do("getattr", self.var(id), item)

    def setattr_id(self, id: Any, item: str, value: Any) -> None:
        setattr(self.var(id), item, value)

    def getitem_id(self, id: Any, item: Any) -> Var:
        return self.do("getitem", self.var(id), item)

    def setitem_id(self, id: Any, item: Any, value: Any) -> None:
        self.var(id)[item] = value

    def fetch_id(self, id: Any) -> Any:
        """The engine's ref to the value."""
        return self.var(id).fetch_ref()

    def publish_id(self, id: Any) -> Any:
        """As `fetch_id`."""
        return self.fetch_id(id)

    def dir_of_id(self, id: Any) -> list[str]:
        return dir(self.var(id))

    def type_of_id(self, id: Any) -> Var:
        return self.do("type", self.var(id))

    def next_of_id(self, id: Any) -> Var:
        return next(self.var(id))

    def iter_of_id(self, id: Any) -> Iterator[Var]:
        return iter(self.var(id))

    def copy_of_id(self, id: Any) -> Var:
        return self.do("copy", self.var(id))

    def func_on_id(self, id: Any, f: Any) -> Var:
        return self.run(f, (self.var(id),))

    # ------------------------------------------------------------------------------------ for variables
    def stream(self) -> StepStream:
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
        """`operation`: one of `mray.proxy._step.OPERATIONS`."""
        stream = self.stream()
        number = stream.add(operation, operands, kwargs)
        place = (stream.id, number)
        return make_var(RemoteReference(self, stream, place, place))

    def do_simple(self, operation: str, var: Var, literal: Any) -> Var:
        """As `do`, faster where possible."""
        stream, reference = self.stream(), reference_of(var)
        if reference.place[0] != stream.id or type(literal) not in IMMUTABLE:
            return self.do(operation, var, literal)
        place = (stream.id, stream.add_simple(operation, reference, literal))
        return make_var(RemoteReference(self, stream, place, place))

    def do_now(self, operation: str, *operands: Any) -> Var:
        """As `do`, but waits and raises what the operation raises."""
        made = self.do(operation, *operands)
        stream = self.stream()
        stream.answer(stream.ask((DONE, *reference_of(made).place)))
        return made

    def state(self, operation: str, *operands: Any) -> None:
        """Run a step without a result."""
        self.stream().add(operation, operands)

    def ask(self, operation: str, *operands: Any) -> Any:
        """The value does not stay there."""
        return self.stream().get(operation, *operands)

    def adopt(self, place: Place, token: Any) -> Var:
        """The variable of a target that something else keeps alive until this does."""
        stream = self.stream()
        holder = new_place(stream)
        stream.add("adopt", (*place, holder, token))
        return make_var(RemoteReference(self, stream, place, holder, token))


class _Loan:
    """A stream for the life of a thread; the next new thread gets it afterwards."""

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
    """One object per interpreter in this process."""
    actor_id = handle._actor_id.hex()  # noqa: SLF001  (Ray's name for it, on any engine)
    known = _known.get().get(actor_id)
    if known is None:
        # Without the lock: it calls the engine. Of two threads the first wins, and the other's connection ends again.
        made = RemoteInterpreter(InterpreterConnection(importlib.import_module(engine), handle, actor_id, name))
        with _knowing:
            known = _known.get().setdefault(actor_id, made)
    return known


class Var(Variable):
    """A remote variable. Its own attributes: `env`, `id`, `fetch`, `fetch_ref`, `bind`; every other one is the object's.

    Blocking calls wait without limit, and raise what the failed step raised (its cause, `StepFailed`, names the step) or
    `InterpreterDiedError`. Any thread may use it; a thread's steps run in order. It may be pickled into tasks, actors and other
    interpreters, and the object lives until its last variable ends.
    """

    __slots__ = ()

    _remote_reference: RemoteReference[RemoteInterpreter]

    def __init__(self) -> None:
        raise TypeError("variables are made by interpreters: env.put(value)")

    # ------------------------------------------------------------------------------------ its own
    @property
    def env(self) -> RemoteInterpreter:
        """The interpreter of the object."""
        return self._remote_reference.env

    @property
    def id(self) -> tuple[int, int]:
        """The object's id, for operations by id."""
        return self._remote_reference.place

    def fetch(self) -> Any:
        """The value, copied here. Waits for it, without limit.

        Raises RuntimeError for a GPU tensor in a process without a GPU: write ``v.cpu().fetch()``.
        """
        reference = self._remote_reference
        stream = reference.env.stream()
        if reference.stream is not stream:
            reference.stream.send()
        return stream.answer(stream.ask((reference.env.connection.fetching, *reference.place)))

    def fetch_ref(self) -> Any:
        """The engine's ref to the value, or to its error; waits for nothing."""
        return self._remote_reference.ref()

    def bind(self, /, *args: Any, **kwargs: Any) -> Any:
        """A DAG node that calls the object, with DAG nodes among the arguments: ``model.forward.bind(inp)``."""
        return self._remote_reference.env.connection.handle.call.bind(self, "", *args, **kwargs)

    def _place_here(self, actor_id: str) -> tuple[int, int] | None:
        return self._remote_reference.place if self._remote_reference.env.id == actor_id else None

    def __reduce__(self) -> tuple[Any, ...]:
        reference = self._remote_reference
        return reference.env.adopt, (reference.place, reference.token())

    def __repr__(self) -> str:
        return str(self._remote_reference.env.ask("shown", self))

    __str__ = __repr__

    # ------------------------------------------------------------------------------------ attributes, items, calls
    def __getattr__(self, name: str) -> Any:
        env = self._remote_reference.env
        if name.startswith("__") and name.endswith("__"):
            if name in _MEMORY:
                raise AttributeError(name)
        elif not wants_answer(1):
            return env.do_simple("getattr", self, name)
        elif name.startswith("_ipython_"):
            raise AttributeError(name)
        return env.do_now("getattr", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._remote_reference.env.state("setattr", self, name, value)

    def __delattr__(self, name: str) -> None:
        self._remote_reference.env.state("delattr", self, name)

    def __getitem__(self, key: Any) -> Var:
        return self._remote_reference.env.do_simple("getitem", self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._remote_reference.env.state("setitem", self, key, value)

    def __delitem__(self, key: Any) -> None:
        self._remote_reference.env.state("delitem", self, key)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Var:
        return self._remote_reference.env.do("call", self, *args, **kwargs)

    def __dir__(self) -> list[str]:
        return list(self._remote_reference.env.ask("dir", self))

    def __format__(self, spec: str) -> str:
        return str(self._remote_reference.env.ask("format", self, spec)) if spec else repr(self)

    # By identity, since `==` returns a variable.
    __hash__ = object.__hash__

    # ------------------------------------------------------------------------------------ iteration
    def __iter__(self) -> Iterator[Var]:
        env = self._remote_reference.env
        iterator = env.do("iter", self)
        count, ended = 8, False
        try:
            while not ended:
                chunk = env.do("advance", iterator, count)
                length, ended = env.ask("end", chunk)
                for index in range(length):
                    yield chunk[index]
                count = min(count * 2, CHUNK)
        finally:
            if not ended:
                env.state("close", iterator)

    def __reversed__(self) -> Iterator[Var]:
        return iter(self._remote_reference.env.do("reversed", self))

    def __next__(self) -> Var:
        return self._remote_reference.env.do_now("next", self)

    # ------------------------------------------------------------------------------------ contexts
    def __enter__(self) -> Var:
        return self._remote_reference.env.do_now("enter", self)

    def __exit__(self, _type: Any, error: BaseException | None, _traceback: Any) -> bool:
        return bool(self._remote_reference.env.ask("exit", self, _sent(self, error)))

    # ------------------------------------------------------------------------------------ asyncio
    def __await__(self) -> Generator[Any, None, Any]:
        return _waited(self._remote_reference.env, AWAITED, self).__await__()

    async def __aenter__(self) -> Var:
        made = self._remote_reference.env.do("aenter", self)
        await _waited(self._remote_reference.env, "done", made)
        return made

    async def __aexit__(self, _type: Any, error: BaseException | None, _traceback: Any) -> bool:
        made = self._remote_reference.env.do("aexit", self, _sent(self, error))
        return bool(await _waited(self._remote_reference.env, VALUE, made))

    async def __aiter__(self) -> AsyncIterator[Var]:
        env = self._remote_reference.env
        iterator = env.do("aiter", self)
        while True:
            item = env.do("anext", iterator)
            if not await _waited(env, VALUE, env.do("len", item)):
                return
            yield item[0]

    # ------------------------------------------------------------------------------------ numpy and torch
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        array = self._remote_reference.env.ask("array", self)
        return array if dtype is None else array.astype(dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        out = kwargs.get("out", ())
        if any(target is not None and type(target) is not Var for target in out):
            # The result goes into memory of this process.
            return getattr(ufunc, method)(*(each.fetch() if type(each) is Var else each for each in inputs), **kwargs)
        return _first((inputs, out)).env.do("ufunc", ufunc, method, *inputs, **kwargs)

    def __array_function__(self, func: Any, _types: Any, args: Any, kwargs: Any) -> Var:
        return _first((args, kwargs)).env.do("call", func, *args, **kwargs)

    @classmethod
    def __torch_function__(cls, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Var:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        env = _first((args, kwargs)).env
        torch = importlib.import_module("torch")
        if getattr(torch, name, None) is func:
            # Its C functions have no names that pickle can find.
            return env.do("call_named", "torch", name, *args, **kwargs)
        return env.do("call", func, *args, **kwargs)

    # ------------------------------------------------------------------------------------ notebooks
    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        return self._remote_reference.env.ask("mime", self, include, exclude)


def make_var(reference: RemoteReference[Any]) -> Var:
    made = object.__new__(Var)
    object.__setattr__(made, "_remote_reference", reference)
    return made


def _sent(var: Var, error: BaseException | None) -> Any:
    """The error in a form that arrives at the variable's interpreter as itself."""
    return error if error is None or reference_of(var).env.connection.local is not None else portable(error)


async def _waited(env: RemoteInterpreter, mode: str, var: Var) -> Any:
    stream = env.stream()
    reference = reference_of(var)
    if reference.stream is not stream:
        reference.stream.send()
    if env.connection.local is not None:
        return await in_thread(lambda: stream.answer(stream.ask((mode, *reference.place))), "proxy-answer")
    return await env.connection.awaited(stream.ask((mode, *reference.place)))


def _first(value: Any) -> Var:
    if type(value) is Var:
        return value
    if isinstance(value, list | tuple):
        for item in value:
            found = _first(item)
            if found is not None:
                return found
    if isinstance(value, dict):
        return _first(list(value.values()))
    return None  # type: ignore[return-value]


# ---------------------------------------------------------------------------------------------- from the table
def _home(operation: str, left: Var, right: Var) -> RemoteInterpreter:
    env: RemoteInterpreter = left.env
    other: RemoteInterpreter = right.env
    if other is env or env.ask("has", left, operation):
        return env
    return other


def _binary(operation: str) -> Callable[..., Var]:
    def method(self: Var, other: Any, *more: Any) -> Var:
        if type(other) is not Var and not more:
            return self._remote_reference.env.do_simple(operation, self, other)
        env = _home(operation, self, other) if type(other) is Var else self._remote_reference.env
        return env.do(operation, self, other, *more)

    return method


def _reflected(operation: str) -> Callable[..., Var]:
    def method(self: Var, other: Any, *more: Any) -> Var:
        return self._remote_reference.env.do(operation, other, self, *more)

    return method


def _unary(operation: str) -> Callable[..., Var]:
    def method(self: Var, *operands: Any) -> Var:
        return self._remote_reference.env.do(operation, self, *operands)

    return method


def _answered(operation: str) -> Callable[..., Any]:
    def method(self: Var, *operands: Any) -> Any:
        return self._remote_reference.env.ask(operation, self, *operands)

    return method


def _shown_as(name: str) -> Callable[..., Any]:
    def method(self: Var) -> Any:
        return self._remote_reference.env.ask("text", self, name)

    return method


def _add_methods() -> None:
    methods: dict[str, Any] = {
        **{dunder(name): _binary(name) for name in BINARY},
        **{dunder(f"r{name}"): _reflected(name) for name in BINARY},
        **{dunder(name): _binary(name) for name in COMPARISONS},
        **{dunder(name): _unary(name) for name in (*IN_PLACE, *UNARY)},
        **{dunder(name): _answered(name) for name in ANSWERED},
        **{
            f"_repr_{name}_": _shown_as(f"_repr_{name}_")
            for name in ("html", "markdown", "svg", "png", "jpeg", "pdf", "latex", "json", "javascript")
        },
    }
    for name, method in methods.items():
        method.__name__ = name
        method.__qualname__ = f"Var.{name}"
        setattr(Var, name, method)


_add_methods()
