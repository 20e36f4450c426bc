"""A remote reference: it keeps a target alive while a variable of this process stands for it.

In the process that uses the variable. It is known to the interpreter by the place of the step by which it began: the step that made the
target, or the one that adopted it when the variable came from elsewhere. It ends when the steps that use it are done, so it counts in
which streams it was used last.
"""

from __future__ import annotations

import threading
from typing import Any, Generic, Protocol, TypeVar

from mray.proxy._connection import InterpreterConnection
from mray.proxy._interpreter import TAKE, TOKEN
from mray.proxy._step import Place


class ReferenceStream(Protocol):
    """The part of a step stream that references need."""

    id: int
    sending: bool

    def add(self, operation: str, operands: tuple[Any, ...]) -> int: ...
    def send(self) -> None: ...
    def ask(self, want: tuple[str, int, int]) -> Any: ...
    def ask_ref(self, want: tuple[str, int, int]) -> Any: ...
    def answer(self, asked: Any) -> Any: ...


class Env(Protocol):
    """The part of an interpreter, as a user holds it, that references need."""

    @property
    def connection(self) -> InterpreterConnection: ...
    def stream(self) -> ReferenceStream: ...
    def var_of(self, reference: RemoteReference[Any]) -> object: ...


E = TypeVar("E", bound=Env)


class RemoteReference(Generic[E]):
    """Ends with the variable that has it."""

    __slots__ = ("_holder", "_token", "env", "place", "stream", "uses")

    def __init__(self, env: E, stream: ReferenceStream, place: Place, holder: Place, token: Any = None) -> None:
        self.env = env
        #: Where it began.
        self.stream = stream
        #: Of the target.
        self.place = place
        self._holder = holder
        #: Lane -> number of the last step that uses it.
        self.uses: dict[int, int] = {holder[0]: holder[1]}
        self._token = token

    def __del__(self) -> None:
        self.env.connection.sender.put((self.env.connection, self.place, self._holder, self.uses))

    def token(self) -> Any:
        """The token that keeps the target alive while a pickled variable is on its way. Asks the interpreter, the first time."""
        if self._token is None:
            # This thread is in the middle of pickling something: after any call, Ray would take the refs that follow for strays.
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
            if not self.stream.sending:  # else all that came before has been sent
                self.stream.send()
            (self._token,) = stream.answer(stream.ask((TOKEN, *self.place)))
        except Exception as error:
            self._token = error

    def ref(self) -> Any:
        """A ref of the engine to the value; waits for nothing."""
        stream = self.env.stream()
        self.stream.send()
        number = stream.add("pass", (self.env.var_of(self),))
        return stream.ask_ref((TAKE, stream.id, number))

    def pass_on(self) -> Any:
        """A ref of the engine to the value, for another interpreter; waits for nothing."""
        stream = self.env.stream()
        self.stream.send()
        number = stream.add("pass", (self.env.var_of(self),))
        return stream.ask((TAKE, stream.id, number))


class Variable:
    """An object that stands for a target: a `mray.proxy._var.Var`."""

    __slots__ = ("__weakref__", "_remote_reference")

    _remote_reference: RemoteReference[Any]


def reference_of(variable: Variable) -> RemoteReference[Any]:
    """The reference by which a variable stands for its target. No method: every name that is not special is the target's."""
    return variable._remote_reference  # noqa: SLF001  (it is of this file)
