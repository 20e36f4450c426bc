"""`Var`: stands for an object of an interpreter; what is done to it is done there.

In any process. Operators, attributes, items and calls give new variables at once; what Python wants here and now (truth, length, items of a
loop, text) is waited for, and raises what any step before it raised. Methods are made from the table in `mray.proxy._operators`.
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

from mray.proxy._errors import portable
from mray.proxy._interpreter import AWAITED, VALUE
from mray.proxy._lookup import wants_answer
from mray.proxy._operators import ANSWERED, BINARY, COMPARISONS, IN_PLACE, UNARY, dunder
from mray.proxy._remote_reference import RemoteReference
from mray.proxy._step import CHUNK

if TYPE_CHECKING:
    from mray.proxy._remote_interpreter import RemoteInterpreter

#: Offers of memory of this process, which a variable has none of.
_MEMORY = frozenset(
    {"__array_interface__", "__array_struct__", "__cuda_array_interface__", "__dlpack__", "__dlpack_device__", "__buffer__"}
)


class Var:
    """A remote variable. Its own: `env`, `id`, `fetch`, `fetch_ref`, `bind`; every other attribute is the object's.

    Blocking calls wait for ever, and raise what the failed step raised (the cause, `StepFailed`, says which it was) or
    `InterpreterDiedError`. Any thread may use it; a thread's steps are done in order. It may be pickled into tasks, actors and other
    interpreters, and the object lives until its last variable ends.
    """

    __slots__ = ("__weakref__", "_remote_reference")

    _remote_reference: RemoteReference
    _is_var = True

    def __init__(self) -> None:
        raise TypeError("variables are made by interpreters: env.put(value)")

    @classmethod
    def _of(cls, reference: RemoteReference) -> Var:
        self = object.__new__(cls)
        object.__setattr__(self, "_remote_reference", reference)
        return self

    # ------------------------------------------------------------------------------------ its own
    @property
    def env(self) -> RemoteInterpreter:
        """The interpreter that has the object."""
        return self._remote_reference.env

    @property
    def id(self) -> tuple[int, int]:
        """Of the object, for operations by id."""
        return self._remote_reference.place

    def fetch(self) -> Any:
        """The value, here. Waits for it, for ever.

        RuntimeError for a tensor of a GPU in a process that has none: write ``v.cpu().fetch()``.
        """
        reference = self._remote_reference
        stream = reference.env.stream()
        if reference.stream is not stream:
            reference.stream.send()
        return stream.answer(stream.ask((reference.env.connection.fetching, *reference.place)))

    def fetch_ref(self) -> Any:
        """A ref of the engine to the value, or its error; waits for nothing."""
        return self._remote_reference.ref()

    def bind(self, /, *args: Any, **kwargs: Any) -> Any:
        """A DAG node that calls the object, with DAG nodes among the arguments: ``model.forward.bind(inp)``."""
        return self._remote_reference.env.connection.handle.call.bind(self, "", *args, **kwargs)

    def _place_here(self, actor_id: str) -> tuple[int, int] | None:
        return self._remote_reference.place if self._remote_reference.env.id == actor_id else None

    def __reduce__(self) -> tuple[Any, ...]:
        reference = self._remote_reference
        # `restore_var` knows interpreters, which know this.
        return importlib.import_module("mray.proxy._remote_interpreter").restore_var, (reference.env, reference.place, reference.token())

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

    # Identity, as `==` gives a variable.
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
        return bool(self._remote_reference.env.ask("exit", self, error if error is None else portable(error)))

    # ------------------------------------------------------------------------------------ asyncio
    def __await__(self) -> Generator[Any, None, Any]:
        return _waited(self._remote_reference.env, AWAITED, self).__await__()

    async def __aenter__(self) -> Var:
        made = self._remote_reference.env.do("aenter", self)
        await _waited(self._remote_reference.env, "done", made)
        return made

    async def __aexit__(self, _type: Any, error: BaseException | None, _traceback: Any) -> bool:
        made = self._remote_reference.env.do("aexit", self, error if error is None else portable(error))
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
            # The result belongs into memory of this process.
            return getattr(ufunc, method)(*(each.fetch() if type(each) is Var else each for each in inputs), **kwargs)
        return _first((inputs, out))._remote_reference.env.do("ufunc", ufunc, method, *inputs, **kwargs)

    def __array_function__(self, func: Any, _types: Any, args: Any, kwargs: Any) -> Var:
        return _first((args, kwargs))._remote_reference.env.do("call", func, *args, **kwargs)

    @classmethod
    def __torch_function__(cls, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Var:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        env = _first((args, kwargs))._remote_reference.env
        torch = importlib.import_module("torch")
        if getattr(torch, name, None) is func:
            # Its functions in C have no names that pickle can find.
            return env.do("call_named", "torch", name, *args, **kwargs)
        return env.do("call", func, *args, **kwargs)

    # ------------------------------------------------------------------------------------ notebooks
    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        return self._remote_reference.env.ask("mime", self, include, exclude)


async def _waited(env: RemoteInterpreter, mode: str, var: Var) -> Any:
    """The answer, awaited."""
    stream = env.stream()
    reference = var._remote_reference
    if reference.stream is not stream:
        reference.stream.send()
    if env.connection.local is not None:
        asyncio = importlib.import_module("asyncio")
        return await asyncio.get_running_loop().run_in_executor(None, lambda: stream.answer(stream.ask((mode, *reference.place))))
    return await env.connection.awaited(stream.ask((mode, *reference.place)))


def _first(value: Any) -> Var:
    """The first variable in these arguments."""
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
    """Where an operator of two variables is done: with the left one if it has the operator, else with the right one."""
    env: RemoteInterpreter = left._remote_reference.env
    other: RemoteInterpreter = right._remote_reference.env
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
