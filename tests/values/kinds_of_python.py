"""Values of Python itself, of its standard library, and of classes that programs write, by family and name; each call makes a new one."""

from __future__ import annotations

import array
import ast
import collections
import contextlib
import copyreg
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import io
import ipaddress
import itertools
import logging
import operator
import os
import pathlib
import random
import re
import string
import sys
import threading
import types
import typing
import urllib.parse
import uuid
import weakref
import zoneinfo
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypedDict, TypeVar

Kinds = dict[str, Callable[[], Any]]
T = TypeVar("T")


# --------------------------------------------------------------------------------------- classes of programs
class Plain:
    """Attributes, and nothing else."""

    def __init__(self, *args: Any, **attributes: Any) -> None:
        self.args = args
        self.__dict__.update(attributes)

    def method(self, more: int = 0) -> tuple[Any, int]:
        return self.args, more

    @classmethod
    def of_class(cls) -> str:
        return cls.__name__

    @staticmethod
    def of_nobody() -> int:
        return 5


class Slotted:
    __slots__ = ("__weakref__", "first", "second")

    def __init__(self, first: Any) -> None:
        self.first = first


class SlottedAndMore(Slotted):
    __slots__ = ("third",)


class WithDict(Slotted):
    """Slots of a base, attributes of its own."""


@dataclasses.dataclass
class Data:
    one: int
    two: list[Any] = dataclasses.field(default_factory=list)
    three: dataclasses.InitVar[int] = 3

    def __post_init__(self, three: int) -> None:
        self.computed = three * self.one


@dataclasses.dataclass(frozen=True)
class Frozen:
    one: int
    two: tuple[Any, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class FrozenSlots:
    one: int
    two: Any = None


@dataclasses.dataclass(slots=True, order=True)
class DataSlots:
    one: int
    two: Any = None


class Colour(enum.Enum):
    RED = "red"
    GREEN = ("green", 1)
    VERT = GREEN


class Level(enum.IntEnum):
    LOW = 1


class Word(str, enum.Enum):
    A = "a"


class Rights(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()


class Bits(enum.IntFlag):
    ONE = 1
    TWO = 2


class Pair(NamedTuple):
    left: Any
    right: Any = 2


OldPair = collections.namedtuple("OldPair", "left right", defaults=[3])


class Box(Generic[T]):
    def __init__(self, item: T) -> None:
        self.item = item


class Dict(TypedDict):
    one: int


class ListOf(list[Any]):
    """A list with attributes."""


class DictOf(dict[Any, Any]):
    pass


class SetOf(set[Any]):
    pass


class FrozenSetOf(frozenset[Any]):
    pass


class TupleOf(tuple[Any, ...]):
    __slots__ = ()


class TupleWith(tuple[Any, ...]):
    pass


class TextOf(str):
    pass


class BytesOf(bytes):
    pass


class BytearrayOf(bytearray):
    pass


class IntOf(int):
    pass


class FloatOf(float):
    pass


class ComplexOf(complex):
    pass


class DequeOf(collections.deque[Any]):
    pass


class OrderedOf(collections.OrderedDict[Any, Any]):
    pass


class DefaultOf(collections.defaultdict[Any, Any]):
    pass


class CounterOf(collections.Counter[Any]):
    pass


class MomentOf(datetime.datetime):
    pass


class SpanOf(datetime.timedelta):
    pass


class DecimalOf(decimal.Decimal):
    pass


class FractionOf(fractions.Fraction):
    pass


class PathOf(pathlib.PurePosixPath):
    pass


class UuidOf(uuid.UUID):
    pass


class UserList(collections.UserList[Any]):
    pass


class UserDict(collections.UserDict[Any, Any]):
    pass


class Zone(datetime.tzinfo):
    def __init__(self, hours: int = 0) -> None:
        self.hours = hours

    def utcoffset(self, _moment: datetime.datetime | None) -> datetime.timedelta:
        return datetime.timedelta(hours=self.hours)


def made(kind: type, content: Any, **attributes: Any) -> Any:
    value = kind(content)
    value.__dict__.update(attributes)
    return value


# ---------------------------------------------------------------------------------- objects that say how they pickle
class Gathering:
    """Hands over what it has gathered, once: who asks a second time for the same message sends an empty one."""

    def __init__(self) -> None:
        self.items = [1, 2, 3]
        self.asked = 0

    def hand_over(self) -> dict[str, Any]:
        items, self.items = self.items, []
        self.asked += 1
        return {"items": items, "asked": self.asked}


class ByGetstate(Gathering):
    def __getstate__(self) -> dict[str, Any]:
        return self.hand_over()


class BySetstate(Gathering):
    def __getstate__(self) -> dict[str, Any]:
        return self.hand_over()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, set=True)


class ByReduce(Gathering):
    def __reduce__(self) -> Any:
        return object.__new__, (type(self),), self.hand_over()


class ByReduceEx(Gathering):
    def __reduce_ex__(self, protocol: Any) -> Any:
        return object.__new__, (type(self),), {**self.hand_over(), "protocol": protocol}


class ByNewargs(Gathering):
    def __new__(cls, *args: Any, **attributes: Any) -> Any:
        new = super().__new__(cls)
        new.given = args, attributes  # type: ignore[attr-defined]
        new.asked = attributes.get("asked", 0)
        return new

    def __getnewargs_ex__(self) -> Any:
        return (1,), self.hand_over()

    def __getstate__(self) -> Any:
        return {"items": "by state"}


class ByCopyreg(Gathering):
    pass


def restored(kind: type, state: dict[str, Any]) -> Any:
    new = object.__new__(kind)
    new.__dict__.update(state)
    return new


copyreg.pickle(ByCopyreg, lambda value: (restored, (ByCopyreg, value.hand_over())))


class ByItems(list[Any]):
    """Pickles by iterators of its items, which are spent."""

    def __reduce__(self) -> Any:
        items = self[:]
        self.clear()
        return ByItems, (), {"left": len(self)}, iter(items)


class Reading(io.BytesIO):
    """A source that is read to its end as it is sent."""

    def __reduce__(self) -> Any:
        return bytes, (self.read(),)


class Singleton:
    def __reduce__(self) -> str:
        return "SINGLETON"


SINGLETON = Singleton()


class Refusing:
    """Cannot be pickled, and says why."""

    def __init__(self, error: type[Exception]) -> None:
        self.error = error

    def __getstate__(self) -> Any:
        raise self.error("this one is not for others")


class RefusingTwice(Gathering):
    """Fails at its first asking only: an error that nobody tells would be lost."""

    def __getstate__(self) -> Any:
        if not self.asked:
            self.asked = 1
            raise AttributeError("asked too early")
        return self.hand_over()


class State:
    """Makes up what it does not have, as starlette's State does."""

    def __init__(self) -> None:
        self._state: dict[str, Any] = {"one": 1}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_state":
            raise AttributeError(name)
        return self._state[name]


class Meta(type):
    def __new__(mcs, name: str, bases: Any, space: Any) -> Any:
        return super().__new__(mcs, name, bases, {**space, "by_meta": 1})


class WithMeta(metaclass=Meta):
    pass


class Node:
    """Knows its children and its parent."""

    def __init__(self, *children: Node) -> None:
        self.children = list(children)
        self.parent: Node | None = None
        for child in children:
            child.parent = self


class Hashed:
    """Hashes by an attribute that is there only after it was restored."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hashed) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)


# ------------------------------------------------------------------------------------------------ exceptions
class Told(Exception):
    """An exception with attributes."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class Odd(Exception):
    """Takes other arguments than it has, and says how to make it."""

    def __init__(self, *, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code

    def __reduce__(self) -> Any:
        return restored_odd, (self.code,)


def restored_odd(code: int) -> Odd:
    return Odd(code=code)


class SlottedError(Exception):
    __slots__ = ("code",)


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    """One that has been on its way already."""
    try:
        try:
            raise KeyError("before")
        except KeyError:
            raise error from cause
    except BaseException as caught:
        return caught.with_traceback(None)


def noted(error: BaseException) -> BaseException:
    error.__notes__ = ["one", "two"]  # type: ignore[attr-defined]
    return error


# ------------------------------------------------------------------------------------------------- functions
def function(first: int, *rest: int, key: int = 1) -> Any:
    return first, rest, key


def decorated(inner: Any) -> Any:
    @functools.wraps(inner)
    def outer(*args: Any) -> Any:
        return "outer", inner(*args)

    return outer


def local_function() -> Any:
    def local(number: int = 3, /, *, more: int = 4) -> int:
        """Adds."""
        return number + more + len(os.sep)

    local.attribute = [1]  # type: ignore[attr-defined]
    return local


def closure(*held: Any) -> Any:
    return lambda: held


def counter() -> list[Any]:
    count = 0

    def more() -> int:
        nonlocal count
        count += 1
        return count

    def read() -> int:
        return count

    more()
    return [more, read]


def recursive() -> Any:
    def factorial(number: int) -> int:
        return 1 if number < 2 else number * factorial(number - 1)

    return factorial


def local_class(*, base: type = object, **attributes: Any) -> Any:
    class Local(base):  # type: ignore[misc,valid-type]
        """By value."""

        shared: typing.ClassVar[list[int]] = [1]

        def method(self) -> Any:
            return __class__, self.shared  # type: ignore[name-defined]

        @property
        def computed(self) -> int:
            return 7

        @classmethod
        def of_class(cls) -> Any:
            return cls

    for name, value in attributes.items():
        setattr(Local, name, value)
    return Local


def local_enum() -> Any:
    class Local(enum.Enum):
        ONE = 1
        TWO = 2

    return Local


def local_data() -> Any:
    @dataclasses.dataclass
    class Local:
        one: int
        two: list[int] = dataclasses.field(default_factory=list)

    return Local(1, [2])


def filled(value: Any, *items: Any, **attributes: Any) -> Any:
    for name, item in attributes.items():
        setattr(value, name, item)
    for item in items:
        value.append(item)
    return value


def itself(value: Any, put: Callable[[Any], object]) -> Any:
    put(value)
    return value


def shared(make: Callable[[], Any], arrange: Callable[[Any], Any]) -> Any:
    return arrange(make())


def weak(kind: Any) -> Any:
    keys = [Hashed("a"), Hashed("b")]
    if kind is weakref.WeakSet:
        return keys, weakref.WeakSet(keys)
    return keys, kind(dict.fromkeys(keys, 1) if kind is weakref.WeakKeyDictionary else dict(zip("ab", keys, strict=True)))


UTC = datetime.timezone.utc
MOMENT = datetime.datetime(2024, 2, 29, 12, 30, 1, 5, fold=1)

BUILTINS: Kinds = {
    **{f"atom {value!r:.20}": lambda value=value: value for value in (None, True, 0, -1, 255, 256, 1 << 31, 1 << 64, -(1 << 200))},
    **{
        f"float {value!r}": lambda value=value: value
        for value in (0.0, -0.0, 1e308, 5e-324, float("inf"), float("nan"), 1j, complex("nan-infj"))
    },
    **{
        f"text {number}": lambda value=value: value
        for number, value in enumerate(("", "a", "ä\0\U0001f600", "\ud800", "x" * 70_000, sys.intern("word")))
    },
    **{
        f"bytes {number}": lambda value=value: value
        for number, value in enumerate((b"", b"a", bytes(range(256)), b"x" * 300, b"y" * 70_000))
    },
    "bytearray": lambda: bytearray(b"abc"),
    "large bytearray": lambda: bytearray(b"z" * 70_000),
    "bytes and bytearray": lambda: [b"q" * 70_000, bytearray(b"w" * 70_000)],
    "memoryview": lambda: memoryview(b"abc"),
    "ellipsis": lambda: [..., NotImplemented],
    "range": lambda: [range(0), range(1, 10, 3), range(1 << 70)],
    "slice": lambda: slice(1, None, -1),
    "list": lambda: [1, "a", [None]],
    "long list": lambda: list(range(3000)),
    "list of objects": lambda: [Plain(number) for number in range(1100)],
    "tuples": lambda: [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), tuple(range(50))],
    "dict": lambda: {"b": 1, "a": 2, 1: 3, (1, 2): 4, None: 5, 1.5: 6, b"k": 7, frozenset([1]): 8},
    "long dict": lambda: {str(number): number for number in range(3000)},
    "sets": lambda: [set(), {1, "a", (2,)}, frozenset(), frozenset({3})],
    "iterators": lambda: [
        iter([1, 2]),
        iter((1,)),
        iter(range(5)),
        reversed([1, 2]),
        enumerate("ab"),
        zip([1], [2], strict=True),
        map(str, [1]),
    ],
    "itertools": lambda: operator.attrgetter("a.b"),
    "getters": lambda: [operator.itemgetter(1, 2), operator.methodcaller("f", 1, k=2)],
    "generator": lambda: [(number for number in range(3))],
    "dict views": lambda: {1: 2}.keys(),
    "mapping proxy": lambda: types.MappingProxyType({1: 2}),
    "simple namespace": lambda: types.SimpleNamespace(a=1, b=[2]),
    "module": lambda: os.path,
    "types": lambda: [int, type, type(None), types.FunctionType, object, BaseException, collections.OrderedDict],
    "builtin functions": lambda: [len, print, "a".join, [].append, dict.fromkeys, str.upper, int.__add__],
    "object": object,
    "big structure": lambda: {"a": [{"b": (index, [str(index)])} for index in range(300)]},
    "deep": lambda: functools.reduce(lambda inner, _: [inner], range(60), 0),
    "cell": lambda: types.CellType(5),
    "code": lambda: compile("1 + 1", "<here>", "eval"),
    "frozen set of frozen sets": lambda: frozenset([frozenset([1]), frozenset()]),
}

STANDARD: Kinds = {
    "deque": lambda: collections.deque([1, [2]], maxlen=5),
    "deque without end": lambda: collections.deque("abc"),
    "ordered dict": lambda: collections.OrderedDict([("b", 1), ("a", 2)]),
    "default dict": lambda: collections.defaultdict(list, {"a": [1]}),
    "default dict of a lambda": lambda: collections.defaultdict(lambda: 5, {"a": 1}),
    "counter": lambda: collections.Counter("abca"),
    "chain map": lambda: collections.ChainMap({"a": 1}, {"b": 2}),
    "user containers": lambda: [UserList([1]), UserDict({"a": 1}), collections.UserString("s")],
    "moments": lambda: [
        MOMENT,
        MOMENT.date(),
        MOMENT.time(),
        MOMENT.replace(tzinfo=UTC),
        datetime.datetime.max,
        datetime.timedelta(-1, 5, 7),
    ],
    "offsets": lambda: [datetime.timezone(datetime.timedelta(hours=5, minutes=30), "name"), MOMENT.replace(tzinfo=Zone(3)), UTC],
    "zones": lambda: [zoneinfo.ZoneInfo("Europe/Berlin"), MOMENT.replace(tzinfo=zoneinfo.ZoneInfo("America/New_York"))],
    "decimals": lambda: [decimal.Decimal("1.10"), decimal.Decimal("NaN"), decimal.Decimal("-0"), decimal.Decimal("Infinity")],
    "decimal context": lambda: decimal.Context(prec=5),
    "fraction": lambda: fractions.Fraction(3, 9),
    "uuids": lambda: [uuid.UUID(int=5), uuid.UUID(int=6, is_safe=uuid.SafeUUID.safe)],
    "paths": lambda: [pathlib.Path("/a/b"), pathlib.PurePosixPath("c"), pathlib.PureWindowsPath("C:/x"), pathlib.Path()],
    "addresses": lambda: [
        *(ipaddress.ip_address("10.0.0.1"), ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_interface("10.0.0.1/8")),
        *(ipaddress.ip_address("::1"), ipaddress.ip_network("fe80::/64")),
    ],
    "patterns": lambda: [re.compile(r"a(b)", re.IGNORECASE | re.MULTILINE), re.compile(rb"x")],
    "match": lambda: re.match("a", "a"),
    "array": lambda: [array.array("d", [1.5, 2]), array.array("q"), array.array("u" if sys.version_info < (3, 13) else "w", "ab")],
    "random": lambda: random.Random(5).getstate(),
    "generator of random numbers": lambda: random.Random(5),
    "text files": lambda: [io.StringIO("abc"), io.BytesIO(b"abc")],
    "logger": lambda: logging.getLogger("tests.values"),
    "url": lambda: urllib.parse.urlparse("https://a:1/b?c#d"),
    "template": lambda: string.Template("$a"),
    "lock": threading.Lock,
    "context variables": lambda: types.SimpleNamespace(stack=contextlib.ExitStack()),
    "struct times": lambda: __import__("time").gmtime(0),
    "stat result": lambda: os.stat_result(range(10)),
    "syntax tree": lambda: ast.parse("a = 1"),
    "generic aliases": lambda: [
        list[int],
        dict[str, Any],
        int | str,
        Callable[[int], str],
        Box[int],
        typing.Literal[1],
    ],
    "type variables": lambda: [T, Any, typing.Union[int, str], Dict],  # noqa: UP007
    "iterators of itertools": lambda: functools.partial(itertools.count, 5),
    "exit stack": lambda: contextlib.nullcontext(5),
    "suppress": lambda: contextlib.suppress(ValueError),
}

CLASSES: Kinds = {
    "plain": lambda: Plain(1, a=[2]),
    "slots": lambda: filled(Slotted(1)),
    "all slots": lambda: filled(SlottedAndMore(1), second=[2], third="c"),
    "slots and attributes": lambda: filled(WithDict(1), second=2, other=3),
    "data": lambda: Data(2, [1]),
    "frozen": lambda: Frozen(1, ([2],)),
    "frozen slots": lambda: FrozenSlots(1, [2]),
    "data slots": lambda: DataSlots(1, {"a": 1}),
    "enums": lambda: [Colour.RED, Colour.VERT, Level.LOW, Word.A, Rights.READ | Rights.WRITE, Rights(0), Bits.ONE | 8, Colour],
    "dict of enums": lambda: {Colour.RED: 1, Level.LOW: 2, Word.A: 3},
    "named tuples": lambda: [Pair(1), Pair([2], 3), OldPair(1), Pair],
    "generic": lambda: Box[int](5),
    "list": lambda: made(ListOf, [1, 2], name="n"),
    "dict": lambda: made(DictOf, {"a": 1}, name="n"),
    "set": lambda: made(SetOf, {1, 2}, name="n"),
    "frozen set": lambda: made(FrozenSetOf, {1, 2}, name="n"),
    "tuple": lambda: TupleOf((1, 2)),
    "tuple with attributes": lambda: made(TupleWith, (1, 2), name="n"),
    "text": lambda: made(TextOf, "abc", name="n"),
    "bytes": lambda: [made(BytesOf, b"abc", name="n"), made(BytesOf, b"x" * 70_000)],
    "bytearray": lambda: [made(BytearrayOf, b"abc", name="n"), made(BytearrayOf, b"x" * 70_000)],
    "int": lambda: made(IntOf, 5, name="n"),
    "float": lambda: made(FloatOf, 1.5, name="n"),
    "complex": lambda: made(ComplexOf, 1j, name="n"),
    "deque": lambda: filled(DequeOf([1], 4), name="n"),
    "ordered": lambda: made(OrderedOf, [("a", 1)], name="n"),
    "default": lambda: filled(DefaultOf(int, {"a": 1}), name="n"),
    "counter": lambda: made(CounterOf, "aab", name="n"),
    "moment": lambda: filled(MomentOf(2024, 1, 2, tzinfo=UTC), name="n"),
    "span": lambda: filled(SpanOf(1), name="n"),
    "decimal": lambda: filled(DecimalOf("1.5")),
    "fraction": lambda: filled(FractionOf(1, 2)),
    "path": lambda: PathOf("a/b"),
    "uuid": lambda: UuidOf(int=5),
    "zone": lambda: Zone(3),
    "class": lambda: [Plain, Data, Meta, WithMeta],
    "instance of a metaclass's": WithMeta,
    "singleton": lambda: [SINGLETON, SINGLETON],
    "state": State,
    "reading": lambda: Reading(b"all of it"),
    "refusing": lambda: Refusing(ValueError),
    "refusing by AttributeError": lambda: Refusing(AttributeError),
    "refusing by TypeError": lambda: [lambda: 1, Refusing(TypeError)],
    "refusing by ImportError": lambda: Refusing(ImportError),
    "refusing by PicklingError": lambda: Refusing(__import__("pickle").PicklingError),
    "refusing twice": RefusingTwice,
}

#: Values that force the pickler to more than names of modules.
BESIDE: Kinds = {
    "a lambda": lambda: lambda: 1,
    "a local class": lambda: local_class()(),
    "the name of main": lambda: "__main__",
    "nothing": lambda: None,
}

COUNTING: Kinds = {
    f"{kind.__name__} beside {name}, {order}": lambda kind=kind, beside=beside, order=order: (
        [filled(kind()), beside()] if order == "before" else {"a": beside(), "b": [filled(kind())]}
    )
    for kind in (ByGetstate, BySetstate, ByReduce, ByReduceEx, ByNewargs, ByCopyreg)
    for name, beside in BESIDE.items()
    for order in ("before", "after")
}
COUNTING.update(
    {
        "items beside a lambda": lambda: [ByItems([1, 2]), lambda: 1],
        "items": lambda: ByItems([1, 2]),
        "a local class that hands over": lambda: local_class(base=ByGetstate)(),
        "a local class that reduces": lambda: local_class(base=ByReduce)(),
        "reading beside a lambda": lambda: [Reading(b"all of it"), lambda: 1],
        "the same twice": lambda: shared(ByGetstate, lambda value: [value, value, lambda: value]),
    }
)

FUNCTIONS: Kinds = {
    "of a module": lambda: [function, Plain.method, decorated, function],
    "decorated": lambda: decorated(function),
    "cached": lambda: functools.cache(local_function()),
    "partial": lambda: functools.partial(function, 1, key=2),
    "partial of a lambda": lambda: functools.partial(lambda a, b: (a, b), 1),
    "partial with attributes": lambda: filled(functools.partial(function, 1), name="n"),
    "partial method": lambda: functools.partialmethod(function, 1),
    "bound method": lambda: [Plain(1).method, Plain.of_class, Plain.of_nobody],
    "method of the object beside": lambda: shared(Plain, lambda value: [value, value.method]),
    "lambda": lambda: lambda a, b=2: a + b,
    "local": local_function,
    "closure": lambda: closure([1], "a"),
    "closure that shares": lambda: shared(list, lambda value: [value, closure(value), closure(value)]),
    "counter of two functions": counter,
    "recursive": recursive,
    "of itself": lambda: itself(closure([]), lambda f: f.__closure__[0].cell_contents[0].append(f)),
    "async": lambda: eval("lambda: None").__class__(
        compile("async def f(): return 1", "<a>", "exec").co_consts[0], {"__name__": "made"}, "f"
    ),
    "function twice": lambda: shared(local_function, lambda value: [value, value]),
    "local class": local_class,
    "instance of a local class": lambda: local_class()(),
    "local class twice": lambda: shared(local_class, lambda kind: [kind, kind(), kind()]),
    "local class of a list": lambda: local_class(base=ListOf)([1]),
    "local exception": lambda: local_class(base=Told)("m", 5),
    "local enum": lambda: shared(local_enum, lambda kind: [kind, kind.ONE, {kind.TWO: 1}]),
    "local data class": local_data,
    "local named tuple": lambda: collections.namedtuple("Local", "a b")(1, [2]),
    "local metaclass": lambda: local_class(base=type)("Made", (), {"a": 1}),
    "local slots": lambda: type("Local", (), {"__slots__": ("a",)})(),
    "property": lambda: property(local_function()),
    "static": lambda: [staticmethod(function), classmethod(local_function())],
    "cached property": lambda: functools.cached_property(local_function()),
    "single dispatch": lambda: functools.singledispatch(function),
    "method of a local class": lambda: local_class()().method,
    "logger in a closure": lambda: closure(logging.getLogger("a.b")),
    "abstract": lambda: type("Local", (), {"f": __import__("abc").abstractmethod(lambda self: 1)}),
    "defaults that share": lambda: shared(
        list, lambda value: [value, local_function.__class__((lambda a=value: a).__code__, {}, "f", (value,))]
    ),
}

EXCEPTIONS: Kinds = {
    "plain": lambda: ValueError("a", [1]),
    "with attributes": lambda: Told("m", 5),
    "odd": lambda: Odd(code=5),
    "slots": lambda: filled(SlottedError("m"), code=5),
    "notes": lambda: noted(ValueError("a")),
    "cause": lambda: raised(ValueError("a"), KeyError("c")),
    "context": lambda: raised(Told("m", 1)),
    "os": lambda: [OSError(2, "no", "file"), FileNotFoundError(2, "no", "a", None, "b"), OSError("odd")],
    "import": lambda: ImportError("m", name="n", path="p"),
    "unicode": lambda: UnicodeDecodeError("utf8", b"\xff", 0, 1, "bad"),
    "stop": lambda: [StopIteration(5), SystemExit(3), KeyboardInterrupt(), GeneratorExit()],
    "key": lambda: KeyError(("a", 1)),
    "attribute": lambda: AttributeError("m", name="n", obj=[1]),
    "syntax": lambda: SyntaxError("m", ("f", 1, 2, "text")),
    "with state": lambda: filled(RuntimeError(), more=[1], other={"a": Told("x")}),
    "class": lambda: [ValueError, Told],
    "warning": lambda: DeprecationWarning("w"),
    **(
        {
            "group": lambda: noted(ExceptionGroup("g", [ValueError(1), Told("m", 2), ExceptionGroup("h", [KeyError()])])),  # noqa: F821
            "base group": lambda: BaseExceptionGroup("g", [KeyboardInterrupt(), ValueError()]),  # noqa: F821
        }
        if sys.version_info >= (3, 11)
        else {}
    ),
    "traceback": lambda: __import__("traceback").TracebackException(ValueError, ValueError("a"), None),
}

SHARED: Kinds = {
    "list in itself": lambda: itself([], lambda value: value.append(value)),
    "dict in itself": lambda: itself({}, lambda value: value.update(me=value)),
    "tuple in its list": lambda: itself(([],), lambda value: value[0].append(value)),
    "object in itself": lambda: itself(Plain(), lambda value: value.__dict__.update(me=value)),
    "object in its list of itself": lambda: itself(ListOf(), lambda value: (value.append(value), setattr(value, "me", value))),
    "set of who knows it": lambda: itself(Plain(), lambda value: value.__dict__.update(all={value})),
    "tree": lambda: Node(Node(), Node(Node())),
    "list twice": lambda: shared(list, lambda value: [value, value]),
    "list in dict and tuple": lambda: shared(list, lambda value: {"a": value, "b": (value, [value])}),
    "object as key and value": lambda: shared(lambda: Hashed("a"), lambda value: {value: [value]}),
    "tuple twice": lambda: shared(lambda: (1, [2]), lambda value: [value, value]),
    "bytes twice": lambda: shared(lambda: b"x" * 70_000, lambda value: [value, value]),
    "bytearray twice": lambda: shared(lambda: bytearray(70_000), lambda value: [value, value]),
    "text twice": lambda: shared(lambda: "x" * 1000, lambda value: [value, value]),
    "weak reference": lambda: shared(lambda: Hashed("a"), lambda value: [value, weakref.ref(value)]),
    "weak set": lambda: weak(weakref.WeakSet),
    "weak keys": lambda: weak(weakref.WeakKeyDictionary),
    "weak values": lambda: weak(weakref.WeakValueDictionary),
    "set of hashed": lambda: {Hashed("a"), Hashed("b")},
    "cycle of hashed": lambda: itself(Hashed("a"), lambda value: value.__dict__.update(others={Hashed("b"): value})),
    "default dict of itself": lambda: itself(collections.defaultdict(list), lambda value: value["a"].append(value)),
    "deque of itself": lambda: itself(collections.deque(), lambda value: value.append(value)),
    "exception of itself": lambda: itself(Told("m"), lambda value: value.__dict__.update(me=value)),
    "frozen data twice": lambda: shared(lambda: FrozenSlots(1, [2]), lambda value: [value, value, value.two]),
    "keyword arguments": lambda: shared(dict, lambda value: functools.partial(function, value, key=value)),
}

FAMILIES: dict[str, Kinds] = {
    "builtins": BUILTINS,
    "standard library": STANDARD,
    "classes": CLASSES,
    "counting": COUNTING,
    "functions": FUNCTIONS,
    "exceptions": EXCEPTIONS,
    "shared parts": SHARED,
}
