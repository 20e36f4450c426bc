"""The parts of programs of the comparison: functions, classes of actors, exceptions of odd shape, values that are hard to send.

All of them stand at the top of a module that workers import, so that both engines name them alike. The first argument of a function or a
method, a `Body`, has its steps.
"""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import enum
import shutil
import threading
from collections import namedtuple
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.differential.stage import Body, act, act_async, act_items, act_items_async, engine

# ------------------------------------------------------------------------------------------- exceptions


class Simple(Exception):
    """Nothing odd."""


class WithFields(Exception):
    def __init__(self, code: int, *, reason: str = "none") -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code
        self.reason = reason

    def __reduce__(self) -> Any:
        return _with_fields, (self.code, self.reason)


def _with_fields(code: int, reason: str) -> WithFields:
    return WithFields(code, reason=reason)


class TwoArguments(Exception):
    """Its copy cannot be made: `args` has one."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")
        self.first = first


class WithLock(Exception):
    """Cannot be pickled."""

    def __init__(self) -> None:
        super().__init__("holds a lock")
        self.lock = threading.Lock()


class ArgsProperty(Exception):
    @property
    def args(self) -> Any:  # type: ignore[override]
        return ("fixed",)


class Final(Exception):
    def __init_subclass__(cls) -> None:
        raise TypeError("Final is final")


class TextRaises(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Slots(Exception):
    __slots__ = ("kept",)

    def __init__(self, kept: int = 3) -> None:
        super().__init__(kept)
        self.kept = kept


class NotAnException(BaseException):
    """A BaseException of the user's."""


class Both(ValueError, KeyError):
    """Two bases with a layout of their own."""


class Meta(type):
    """A metaclass for an exception."""


class WithMeta(Exception, metaclass=Meta):
    """One."""


@dataclasses.dataclass
class AsData(Exception):
    code: int = 4
    text: str = "data"


class OwnLookup(LookupError):
    """Between two of Python's."""


class OwnKey(OwnLookup, KeyError):
    """Below it, and below a KeyError too."""


class WithCall(Exception):
    """An attribute and a method that RayTaskError has too."""

    cause = "mine"

    def as_instanceof_cause(self) -> str:
        return "mine"


class NewTakes(Exception):
    def __new__(cls, number: int, text: str) -> NewTakes:
        made = super().__new__(cls, number, text)
        made.number = number  # type: ignore[attr-defined]
        return made

    def __init__(self, number: int, text: str) -> None:
        super().__init__(number, text)


def _noted() -> Exception:
    error = ValueError("noted")
    if hasattr(error, "add_note"):
        error.add_note("a note")
    return error


def _caused() -> Exception:
    try:
        try:
            raise KeyError("inner")
        except KeyError as inner:
            raise ValueError("outer") from inner
    except ValueError as outer:
        return outer


def _group() -> BaseException:
    return ExceptionGroup("two", [ValueError("a"), TypeError("b")])  # noqa: F821  # (of Python 3.11)


EXCEPTIONS: dict[str, Callable[[], BaseException]] = {
    "Exception": lambda: Exception("plain"),
    "ValueError": lambda: ValueError("bad value"),
    "no arguments": lambda: ValueError(),
    "several arguments": lambda: ValueError(1, "two", [3]),
    "KeyError": lambda: KeyError("key"),
    "IndexError": lambda: IndexError("index"),
    "AttributeError": lambda: AttributeError("attribute", name="n", obj=3),
    "ImportError": lambda: ImportError("import", name="a", path="b"),
    "OSError": lambda: OSError(2, "none such", "a-file"),
    "FileNotFoundError": lambda: FileNotFoundError(2, "none such"),
    "UnicodeDecodeError": lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
    "TimeoutError": lambda: TimeoutError("late"),
    "ConnectionResetError": lambda: ConnectionResetError("reset"),
    "StopIteration": lambda: StopIteration(5),
    "StopAsyncIteration": lambda: StopAsyncIteration(5),
    "AssertionError": lambda: AssertionError("assert"),
    "NotImplementedError": lambda: NotImplementedError("not yet"),
    "MemoryError": lambda: MemoryError("memory"),
    "RecursionError": lambda: RecursionError("deep"),
    "ZeroDivisionError": lambda: ZeroDivisionError("zero"),
    "CancelledError": lambda: asyncio.CancelledError("cancelled"),
    "GeneratorExit": lambda: GeneratorExit("out"),
    "SyntaxError": lambda: SyntaxError("syntax", ("file", 3, 4, "text")),
    "ExceptionGroup": _group,
    "Simple": lambda: Simple("simple"),
    "WithFields": lambda: WithFields(7, reason="seven"),
    "TwoArguments": lambda: TwoArguments(1, 2),
    "WithLock": WithLock,
    "ArgsProperty": lambda: ArgsProperty("given"),
    "Final": lambda: Final("final"),
    "TextRaises": lambda: TextRaises("hidden"),
    "Slots": Slots,
    "NotAnException": lambda: NotAnException("base"),
    "Both": lambda: Both("both"),
    "WithMeta": lambda: WithMeta("meta"),
    "AsData": AsData,
    "WithCall": lambda: WithCall("call"),
    "OwnLookup": lambda: OwnLookup("own lookup"),
    "OwnKey": lambda: OwnKey("own key"),
    "LookupError": lambda: LookupError("lookup"),
    "NewTakes": lambda: NewTakes(3, "three"),
    "noted": _noted,
    "caused": _caused,
    "RayError": lambda: engine.exceptions.RayError("ray's own"),
    "GetTimeoutError": lambda: engine.exceptions.GetTimeoutError("own"),
    "TaskCancelledError": lambda: engine.exceptions.TaskCancelledError(),
    "WorkerCrashedError": lambda: engine.exceptions.WorkerCrashedError(),
    "ActorDiedError": lambda: engine.exceptions.ActorDiedError(),
    "ObjectStoreFullError": lambda: engine.exceptions.ObjectStoreFullError("full"),
    "PendingCallsLimitExceeded": lambda: engine.exceptions.PendingCallsLimitExceeded("many"),
    "RaySystemError": lambda: engine.exceptions.RaySystemError("system"),
    "UserCodeException": lambda: engine.exceptions.UserCodeException("user"),
}


# ----------------------------------------------------------------------------------------------- values
class Color(enum.Enum):
    RED = 1


class Flags(enum.IntFlag):
    A = 1
    B = 2


Point = namedtuple("Point", ["x", "y"])


@dataclasses.dataclass(frozen=True)
class Record:
    a: int
    b: str = "b"


class Plain:
    """An instance with a text of its own."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __repr__(self) -> str:
        return f"Plain({self.n})"


class RaisesWhenPickled:
    def __reduce__(self) -> Any:
        raise RuntimeError("not to be pickled")


def _raise(text: str) -> Any:
    raise RuntimeError(text)


class RaisesWhenUnpickled:
    def __reduce__(self) -> Any:
        return _raise, ("not to be unpickled",)


def _cycle() -> list[Any]:
    made: list[Any] = [1]
    made.append(made)
    return made


def _numbers() -> Iterator[int]:
    yield 1


def _object_array() -> Any:
    return np.array([1, "a", None], dtype=object)


def _read_only() -> Any:
    made = np.arange(5)
    made.flags.writeable = False
    return made


VALUES: dict[str, Callable[[], Any]] = {
    "Color": lambda: Color.RED,
    "Flags": lambda: Flags.A | Flags.B,
    "Point": lambda: Point(1, 2),
    "Record": lambda: Record(1),
    "Plain": lambda: Plain(3),
    "lambda": lambda: lambda x: x,
    "lock": threading.Lock,
    "generator": _numbers,
    "module": lambda: dataclasses,
    "class": lambda: Plain,
    "builtin": lambda: len,
    "thread": lambda: threading.current_thread(),
    "unpicklable": RaisesWhenPickled,
    "not unpicklable": RaisesWhenUnpickled,
    "cycle": _cycle,
    "object()": lambda: type(object()),
    "ellipsis": lambda: ...,
    "NotImplemented": lambda: NotImplemented,
    "complex": lambda: 1 + 2j,
    "nan": lambda: float("nan"),
    "inf": lambda: float("inf"),
    "big int": lambda: 1 << 100,
    "range": lambda: range(3),
    "slice": lambda: slice(1, 2),
    "date": lambda: datetime.datetime(2020, 1, 2, tzinfo=datetime.timezone.utc),
    "set": lambda: {3},
    "frozenset": lambda: frozenset([3]),
    "bytes": lambda: b"bytes",
    "bytearray": lambda: bytearray(b"array"),
    "memoryview": lambda: memoryview(b"view"),
    "large bytes": lambda: b"x" * 200_000,
    "large text": lambda: "ä" * 200_000,
    "array": lambda: np.arange(6),
    "large array": lambda: np.arange(200_000),
    "2d": lambda: np.arange(6.0).reshape(2, 3),
    "fortran": lambda: np.asfortranarray(np.arange(60_000.0).reshape(200, 300)),
    "strided": lambda: np.arange(40_000)[::2],
    "object array": _object_array,
    "structured": lambda: np.zeros(3, dtype=[("a", "i4"), ("b", "f8")]),
    "empty array": lambda: np.empty((0, 3)),
    "scalar": lambda: np.float32(1.5),
    "0d": lambda: np.array(5),
    "datetime64": lambda: np.array(["2020-01-01"], dtype="datetime64[D]"),
    "read-only array": _read_only,
    "arrays in a dict": lambda: {"a": np.arange(30_000), "b": [np.ones(2)]},
    "exception": lambda: ValueError("a value"),
    "exception class": lambda: ValueError,
    "ref class": lambda: engine.ObjectRef,
    "signed zero": lambda: -0.0,
    "surrogate": lambda: "\udc80",
}


# -------------------------------------------------------------------------------------------- functions
def plain(body: Body, *args: Any, **kwargs: Any) -> Any:
    return act(body, args, kwargs)


def signature(a: Any, b: Any = 2, *, c: Any = 3) -> Any:
    return [a, b, c]


def positional(a: Any, /, b: Any, *rest: Any) -> Any:
    return [a, b, rest]


def nothing() -> None:
    return None


def many(*args: Any, **kwargs: Any) -> Any:
    return [args, kwargs]


def items(body: Body, *args: Any, **kwargs: Any) -> Iterator[Any]:
    yield from act_items(body, args, kwargs)


async def coroutine(body: Body) -> Any:
    return 1


async def async_items(body: Body) -> Any:
    yield 1


def square(x: Any) -> Any:
    return x * x


def not_two(x: Any) -> Any:
    if x == 2:
        raise WithFields(2, reason="two")
    return x


def add(x: Any, y: Any = 10) -> Any:
    return x + y


#: The value that a pool's initializer has set in its process.
told: list[Any] = []


def tell(*what: Any) -> None:
    told.append(what)


def hear(x: Any) -> Any:
    return [x, told]


FUNCTIONS: dict[str, Any] = {
    each.__name__: each
    for each in (plain, signature, positional, nothing, many, items, coroutine, async_items, square, not_two, add, tell, hear)
}
FUNCTIONS["lambda"] = lambda *args: args


# ----------------------------------------------------------------------------------------------- actors
class Sync:
    """Methods that are plain functions."""

    label = "class attribute"

    def __init__(self, body: Body | None = None, *args: Any, **kwargs: Any) -> None:
        self.total = 0
        self.body = body
        if body is not None:
            act(body, args, kwargs)

    def run(self, body: Body, *args: Any, **kwargs: Any) -> Any:
        return act(body, args, kwargs)

    def items(self, body: Body, *args: Any, **kwargs: Any) -> Iterator[Any]:
        yield from act_items(body, args, kwargs)

    def add(self, number: int = 1) -> int:
        self.total += number
        return self.total

    def signature(self, a: Any, b: Any = 2, *, c: Any = 3) -> Any:
        return [a, b, c]

    def pid(self) -> int:
        import os

        return os.getpid()

    def itself(self) -> Any:
        return engine.get_runtime_context().current_actor

    @engine.method(num_returns=2)
    def two(self, body: Body, *args: Any) -> Any:
        return act(body, args, {})

    @engine.method(max_task_retries=2, retry_exceptions=True)
    def tries(self, body: Body, *args: Any) -> Any:
        return act(body, args, {})

    @staticmethod
    def static(number: int = 1) -> int:
        return number + 100

    @classmethod
    def of_class(cls, number: int = 1) -> str:
        return f"{cls.__name__} {number}"

    @property
    def prop(self) -> int:
        return self.total

    def _private(self) -> str:
        return "private"

    def __len__(self) -> int:
        return 5


class Child(Sync):
    """Inherits, and has a text of its own."""

    def add(self, number: int = 1) -> int:
        return super().add(10 * number)

    def __repr__(self) -> str:
        return "Child!"


class Async:
    """Coroutines, and methods that are none."""

    def __init__(self, body: Body | None = None, *args: Any, **kwargs: Any) -> None:
        self.total = 0
        if body is not None:
            act(body, args, kwargs)

    async def run(self, body: Body, *args: Any, **kwargs: Any) -> Any:
        return await act_async(body, args, kwargs)

    async def items(self, body: Body, *args: Any, **kwargs: Any) -> Any:
        async for item in act_items_async(body, args, kwargs):
            yield item

    async def add(self, number: int = 1) -> int:
        self.total += number
        return self.total

    def pid(self) -> int:
        import os

        return os.getpid()

    def plain(self, body: Body, *args: Any) -> Any:
        return act(body, args, {})

    async def signature(self, a: Any, b: Any = 2, *, c: Any = 3) -> Any:
        return [a, b, c]


class Grouped:
    """Methods of concurrency groups."""

    def __init__(self, body: Body | None = None, *args: Any, **kwargs: Any) -> None:
        self.total = 0
        if body is not None:
            act(body, args, kwargs)

    @engine.method(concurrency_group="io")
    def run(self, body: Body, *args: Any, **kwargs: Any) -> Any:
        return act(body, args, kwargs)

    @engine.method(concurrency_group="compute")
    def add(self, number: int = 1) -> int:
        self.total += number
        return self.total

    def pid(self) -> int:
        import os

        return os.getpid()

    def free(self, body: Body, *args: Any) -> Any:
        return act(body, args, {})


class GroupedAsync:
    """Coroutines of concurrency groups."""

    def __init__(self) -> None:
        self.total = 0

    @engine.method(concurrency_group="io")
    async def run(self, body: Body, *args: Any) -> Any:
        return await act_async(body, args, {})

    @engine.method(concurrency_group="compute")
    async def add(self, number: int = 1) -> int:
        self.total += number
        return self.total

    def pid(self) -> int:
        import os

        return os.getpid()

    async def free(self, body: Body, *args: Any) -> Any:
        return await act_async(body, args, {})


class Station:
    """The parts of graphs."""

    def __init__(self) -> None:
        self.total = 0

    def pid(self) -> int:
        import os

        return os.getpid()

    def echo(self, value: Any) -> Any:
        return value

    def add(self, number: int = 1) -> int:
        self.total += number
        return self.total

    def join(self, *parts: Any, **named: Any) -> Any:
        return [list(parts), sorted(named.items())]

    def not_two(self, value: Any) -> Any:
        if value == 2:
            raise WithFields(2, reason="two")
        return value

    def fails(self, *_values: Any) -> Any:
        raise Simple("always")

    @engine.method(num_returns=2)
    def split(self, value: Any) -> Any:
        return value, [value]

    @engine.method(num_returns=2)
    def split_badly(self, value: Any) -> Any:
        return (value,)

    def nothing(self, *_values: Any) -> None:
        return None

    def array(self, size: Any) -> Any:
        return np.arange(int(size))

    def total_of(self, array: Any) -> Any:
        return [int(np.sum(array)), bool(array.flags.writeable)]


class Refuses:
    """Methods with options of their own."""

    def __init__(self, folder: Any = None) -> None:
        self.total = 0

    def pid(self) -> int:
        import os

        return os.getpid()

    @engine.method(retry_exceptions=[LookupError], max_task_retries=2)
    def lookups(self, body: Body, *args: Any) -> Any:
        return act(body, args, {})

    @engine.method(retry_exceptions=False, max_task_retries=2)
    def never(self, body: Body, *args: Any) -> Any:
        return act(body, args, {})

    @engine.method(retry_exceptions=True, max_task_retries=0)
    def not_at_all(self, body: Body, *args: Any) -> Any:
        return act(body, args, {})

    @engine.method(max_task_retries=-1, retry_exceptions=True)
    def always(self, body: Body, *args: Any) -> Any:
        return act(body, args, {})

    @engine.method(num_returns="streaming")
    def stream(self, body: Body, *args: Any) -> Any:
        yield from act_items(body, args, {})

    @engine.method(num_returns="dynamic")
    def dynamic(self, body: Body, *args: Any) -> Any:
        yield from act_items(body, args, {})

    @engine.method(num_returns=0)
    def none(self, body: Body, *args: Any) -> Any:
        return act(body, args, {})

    @engine.method(enable_task_events=False)
    def unseen(self, body: Body, *args: Any) -> Any:
        return act(body, args, {})

    def plain(self, body: Body, *args: Any) -> Any:
        return act(body, args, {})


class NoInit:
    """No `__init__` at all."""

    value = 3

    def pid(self) -> int:
        import os

        return os.getpid()

    def value_of(self) -> int:
        return self.value

    def run(self, body: Body, *args: Any) -> Any:
        return act(body, args, {})


class Empty:
    """Not even a method."""


CLASSES: dict[str, type] = {each.__name__: each for each in (Sync, Child, Async, Grouped, NoInit, Empty)}
#: Those for programs of one kind.
SPECIAL: dict[str, type] = {each.__name__: each for each in (GroupedAsync, Station, Refuses)}


# ---------------------------------------------------------------------------------------- environments
def sample(folder: Path, name: str) -> str:
    """A folder, an archive or a file for a runtime environment."""
    made = folder / f"samples-{name}"
    if name == "module":  # a package
        _write(made / "sample_package" / "__init__.py", "VALUE = 'of a package'\n")
        return str(made / "sample_package")
    if name == "file":
        _write(made / "sample_single.py", "VALUE = 'of a file'\n")
        return str(made / "sample_single.py")
    _write(made / "sample.txt", f"in {name}")
    _write(made / "sample_module.py", f"VALUE = 'of {name}'\n")
    return str(made)


def archive(folder: Path, name: str) -> str:
    """The address of an archive of such a folder, or of the folder around such a file."""
    made = Path(sample(folder, name))
    top = made.parent if made.suffix or made.name == "sample_package" else made
    target = folder / f"archive-{name}.zip"
    if not target.exists():
        shutil.make_archive(str(target.with_suffix("")), "zip", folder, top.name)
    return f"file://{target}"


def _write(path: Path, text: str) -> None:
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
