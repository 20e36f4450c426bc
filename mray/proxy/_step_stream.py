"""A step stream: the steps that one thread asks of one interpreter, in order; and the references of variables to their results.

Steps are sent when the program wants a result, when there are many, or by the sender a moment later.

A step whose operands could change before it is sent (or that are of unknown types) is sent immediately, after earlier ones. Pickling it
may call anything; steps of that code use another stream, since this one is in the middle of a step.

Ctrl-C may arrive between any two lines, and no number may be left out, since the interpreter would wait for its step. So steps stay in
`_pending` until they have been sent, and may be sent twice; the interpreter runs them once.

The interpreter knows a remote reference by the place of the step by which it began: the step that created the target, or the one that
adopted it when the variable arrived from elsewhere. It ends when the steps that use it are done, so it records the last use in each
stream.
"""

from __future__ import annotations

import pickle
import threading
from types import ModuleType
from typing import Any, Generic, Protocol, TypeVar

from mray.proxy._connection import InterpreterConnection
from mray.proxy._interpreter import READY, TAKE, TOKEN
from mray.proxy._step import FOREIGN, LITERAL, MODULE, NESTED, OTHER, SAME, At, ForeignAt, NamedModule, Place, Step
from mray.proxy._tensor_transfer import TransferRef, transferred

_MANY = 128
#: steps in flight before the thread waits for the interpreter to catch up
_WINDOW = 20_000
#: types of literals that cannot change
IMMUTABLE = frozenset({int, float, complex, str, bytes, bool, type(None), type(Ellipsis), type(NotImplemented), range})
#: Replaces a step that could not be pickled.
_NOTHING: Step = ("close", LITERAL, (None,), ())


class StepStream:
    """Used by one thread at a time; the sender sends the rest."""

    __slots__ = ("__weakref__", "_batching", "_lock", "_pending", "_queued", "_unanswered", "connection", "id", "sending")

    def __init__(self, connection: InterpreterConnection, stream_id: int) -> None:
        self.connection = connection
        self.id = stream_id
        #: whether its thread is pickling a step
        self.sending = False
        # Pickling a step may need this stream's earlier steps to be sent.
        self._lock = threading.RLock()
        #: the number of the first unsent step, and the unsent steps
        self._pending: tuple[int, list[Step]] = (0, [])
        self._queued = False
        self._batching = 0
        self._unanswered = 0
        connection.streams.add(self)

    def add(self, operation: str, operands: tuple[Any, ...], kwargs: dict[str, Any] | None = None, asks: bool = False) -> int:
        """Returns the step's number. Raises what the pickling of an operand raises. With `asks` the caller sends it immediately."""
        names: tuple[str, ...] = ()
        if kwargs:
            names = tuple(kwargs)
            operands = (*operands, *kwargs.values())
        uses: list[RemoteReference[Any]] = []
        kinds, wire, immutable = self._encode(operands, uses)
        with self._lock:
            first, steps = self._pending
            number = first + len(steps)
            for reference in uses:
                reference.uses[self.id] = number
            step = (operation, kinds, wire, names)
            if not immutable or self.connection.local is not None:
                self.send()
                self._send_alone(number, step)
            else:
                steps.append(step)
                if len(steps) >= _MANY or not (asks or self._queued):
                    self._dispatch(steps)
        if self._unanswered > _WINDOW and not self._batching:
            self.connection.answer(self.ask((READY, 0, -1)))
        return number

    def add_simple(self, operation: str, reference: RemoteReference[Any], literal: Any) -> int:
        """As `add`, for most of a chain: an operator with a literal, an attribute, an item, of a result of this stream."""
        if self.connection.local is not None:
            return self.add(operation, (reference.env.var_of(reference), literal))
        with self._lock:
            first, steps = self._pending
            number = first + len(steps)
            reference.uses[self.id] = number
            steps.append((operation, "sv", (reference.place[1], literal), ()))
            if not self._queued or number - first >= _MANY:
                self._dispatch(steps)
        if self._unanswered > _WINDOW and not self._batching:
            self.connection.answer(self.ask((READY, 0, -1)))
        return number

    def _dispatch(self, steps: list[Step]) -> None:
        if self._batching:
            return
        if len(steps) >= _MANY:
            self.send()
        elif not self._queued:
            try:
                self._queued = True
                self.connection.sender.put(self)
            except BaseException:
                self._queued = False
                raise

    def send(self) -> None:
        with self._lock:
            first, steps = self._pending
            if steps:
                self.connection.send(self.id, first, pickle.dumps(steps, 5))
                self._pending = (first + len(steps), [])
                self._unanswered += len(steps)

    def _send_alone(self, number: int, step: Step) -> None:
        self.sending = True
        try:
            self._pending = (number + 1, [])
            self.connection.send(self.id, number, [step])
        except BaseException:
            self._pending = (number + 1, [])
            self.connection.send(self.id, number, [_NOTHING])
            raise
        finally:
            self.sending = False
        self._unanswered += 1

    def send_rest(self) -> None:
        self._queued = False
        if not self._batching:
            self.send()

    def finish(self) -> None:
        """Wait until everything is done. Raises an error that was not reported yet."""
        if self._pending[1] or self._unanswered:
            self.connection.answer(self.ask((READY, 0, -1)))

    def ask(self, want: tuple[str, int, int]) -> Any:
        """Send the rest. Returns the argument of `answer`, for one use."""
        with self._lock:
            first, steps = self._pending
            after = -1 if want[0] == TOKEN else first + len(steps) - 1
            asked = self.connection.ask(self.id, first, pickle.dumps(steps, 5) if steps else None, (*want, after))
            if steps:
                self._pending = (first + len(steps), [])
            self._unanswered = 0
            return asked

    def ask_ref(self, want: tuple[str, int, int]) -> Any:
        """As `ask`; returns the engine's ref to the value, or its error."""
        self.send()
        last = self.next - 1
        return self.connection.value_ref(self.id, last, None, (*want, last))

    @property
    def next(self) -> int:
        return self._pending[0] + len(self._pending[1])

    def answer(self, asked: Any) -> Any:
        return self.connection.answer(asked)

    def get(self, operation: str, *operands: Any) -> Any:
        """Run a step and wait for its value, which does not stay there."""
        with self._lock:
            number = self.add(operation, operands, None, True)
            asked = self.ask((TAKE, self.id, number))
        return self.connection.answer(asked)

    def batch(self, change: int) -> None:
        """Begin (1) or end (-1) collecting steps until a result is wanted."""
        self._batching += change
        if not self._batching:
            self.send()

    # ------------------------------------------------------------------------------------ operands
    def _encode(self, operands: tuple[Any, ...], uses: list[RemoteReference[Any]]) -> tuple[str, tuple[Any, ...], bool]:
        """Kinds, the operands as they travel, and whether they cannot change before."""
        kinds = ""
        wire = []
        immutable = True
        for operand in operands:
            kind = type(operand)
            if kind in IMMUTABLE:
                kinds += LITERAL
                wire.append(operand)
            elif issubclass(kind, Variable):
                reference = reference_of(operand)
                if reference.env.connection is self.connection:
                    uses.append(reference)
                    stream, number = place = reference.place
                    if stream == self.id:
                        kinds += SAME
                        wire.append(number)
                    else:
                        reference.stream.send()
                        kinds += OTHER
                        wire.append(place)
                elif reference.env.connection.local is not None:
                    value = transferred(self.connection.engine, operand.fetch())
                    kinds += FOREIGN if type(value) is TransferRef else LITERAL
                    wire.append(value)
                    immutable = False
                else:
                    kinds += FOREIGN
                    wire.append(reference.pass_on())
                    immutable = False
            elif isinstance(operand, ModuleType):
                kinds += MODULE
                wire.append(operand.__name__)
            elif kind in (tuple, list, dict, set, slice):
                replaced = self._replace(operand, uses)
                kinds += LITERAL if replaced is operand else NESTED
                wire.append(replaced)
                immutable = immutable and kind in (tuple, slice) and _is_immutable(operand)
            else:
                kinds += LITERAL
                wire.append(operand)
                immutable = False
        return kinds, tuple(wire), immutable

    def _replace(self, value: Any, uses: list[RemoteReference[Any]]) -> Any:
        """Places instead of variables; `value` itself if it has none."""
        kind = type(value)
        if kind in IMMUTABLE:
            return value
        if issubclass(kind, Variable):
            kinds, wire, _immutable = self._encode((value,), uses)
            if kinds == SAME:
                return At(self.id, wire[0])
            if kinds == OTHER:
                return At(*wire[0])
            return ForeignAt(wire[0]) if kinds == FOREIGN else wire[0]
        if isinstance(value, ModuleType):
            return NamedModule(value.__name__)
        if kind is slice:
            parts = [self._replace(part, uses) for part in (value.start, value.stop, value.step)]
            same = parts[0] is value.start and parts[1] is value.stop and parts[2] is value.step
            return value if same else slice(*parts)
        if kind is dict:
            keys = [self._replace(key, uses) for key in value]
            items = [self._replace(item, uses) for item in value.values()]
            same = all(map(_is, keys, value)) and all(map(_is, items, value.values()))
            return value if same else dict(zip(keys, items, strict=True))
        if kind in (list, tuple, set):
            items = [self._replace(item, uses) for item in value]
            return value if all(map(_is, items, value)) else kind(items)
        return value


def _is(one: Any, other: Any) -> bool:
    return one is other


def _is_immutable(value: Any) -> bool:
    kind = type(value)
    if kind is tuple:
        return all(map(_is_immutable, value))
    if kind is slice:
        return _is_immutable((value.start, value.stop, value.step))
    return kind in IMMUTABLE or issubclass(kind, Variable)


# ---------------------------------------------------------------------------------------------- references
class Env(Protocol):
    @property
    def connection(self) -> InterpreterConnection: ...
    def stream(self) -> StepStream: ...
    def var_of(self, reference: RemoteReference[Any]) -> object: ...


E = TypeVar("E", bound=Env)


class RemoteReference(Generic[E]):
    __slots__ = ("_holder", "_token", "env", "place", "stream", "uses")

    def __init__(self, env: E, stream: StepStream, place: Place, holder: Place, token: Any = None) -> None:
        self.env = env
        self.stream = stream
        self.place = place
        self._holder = holder
        #: stream -> number of the last step that uses it
        self.uses: dict[int, int] = {holder[0]: holder[1]}
        self._token = token

    def __del__(self) -> None:
        self.env.connection.sender.put((self.env.connection, self.place, self._holder, self.uses))

    def token(self) -> Any:
        """Keeps the target alive while a pickled variable is in transit. Asks the interpreter, the first time."""
        if self._token is None:
            # This thread is pickling: after a call, Ray would take the refs that follow for strays.
            asking = threading.Thread(target=self._ask_token, name="proxy token")
            asking.start()
            asking.join()
        if isinstance(self._token, Exception):
            error, self._token = self._token, None
            raise error
        return self._token

    def _ask_token(self) -> None:
        stream = self.env.stream()
        try:
            if not self.stream.sending:  # else all earlier steps have been sent
                self.stream.send()
            (self._token,) = stream.answer(stream.ask((TOKEN, *self.place)))
        except Exception as error:
            self._token = error

    def ref(self) -> Any:
        stream, want = self._step_to_take()
        return stream.ask_ref(want)

    def pass_on(self) -> Any:
        """A ref for another interpreter; waits for nothing."""
        stream, want = self._step_to_take()
        return stream.ask(want)

    def _step_to_take(self) -> tuple[StepStream, tuple[str, int, int]]:
        stream = self.env.stream()
        self.stream.send()
        return stream, (TAKE, stream.id, stream.add("pass", (self.env.var_of(self),)))


class Variable:
    """The base of `mray.proxy._var.Var`."""

    __slots__ = ("__weakref__", "_remote_reference")

    _remote_reference: RemoteReference[Any]


def reference_of(variable: Variable) -> RemoteReference[Any]:
    """No method, since every name that is not special is the target's."""
    return variable._remote_reference  # noqa: SLF001  (it is of this file)


def new_place(stream: StepStream) -> Place:
    """The caller adds that step immediately, in the stream's thread."""
    return stream.id, stream.next
