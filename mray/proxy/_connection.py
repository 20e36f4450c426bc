"""A connection: how a process talks to one interpreter; and the sender, a thread that sends steps without a waiter.

By calls of the engine's actor; directly, if the interpreter is this process. While a connection lives, so do its client's variables: the
interpreter notices its end by a token.

Each process that uses variables has one sender. A variable that ends puts a record on its queue, from a finalizer, which may take no
lock.
"""

from __future__ import annotations

import atexit
import importlib
import logging
import queue
import threading
import weakref
from collections.abc import Callable
from queue import Empty
from typing import Any, Protocol, TypeVar

from mray._common import clock
from mray._common.kept import os
from mray._common.process_local import ProcessLocal
from mray.proxy._errors import Failure, InterpreterDiedError
from mray.proxy._interpreter import TRANSFER, VALUE, Interpreter, Sent, Want, here
from mray.proxy._tensor_transfer import brought

_log = logging.getLogger(__name__)

#: seconds that a step may wait for others to go with it
LINGER = 0.001
#: Texts of mray and torch about a GPU tensor in a process without a GPU.
_NO_GPU = ("has no GPU to put it on", "torch.cuda.is_available() is False")


Result = TypeVar("Result")


class SendingStream(Protocol):
    def send_rest(self) -> None: ...
    def finish(self) -> None: ...


class InterpreterConnection:
    """A process's connection to an interpreter. Any thread. Calls that wait raise `InterpreterDiedError`."""

    def __init__(self, engine: Any, handle: Any, actor_id: str, name: str | None = None) -> None:
        self.engine = engine
        self.id = actor_id
        self.name = name
        self.client = int.from_bytes(os.urandom(8), "little") >> 26
        self.destroyed = False
        self.node = engine.get_runtime_context().get_node_id()
        living_here = here.get()
        self.local = living_here.get(actor_id)
        #: An interpreter takes GPU tensors as they are passed between interpreters.
        self.fetching = VALUE if self.local is not None or not living_here else TRANSFER
        self.actor_died = importlib.import_module(f"{engine.__name__}.exceptions").RayActorError
        self._handle: Any = None
        self._token: Any = None
        self._call: Any = None
        self._send: Any = None
        if self.local is None:
            self._handle = handle
            self._call = handle.serve.remote
            self._send = handle.serve.options(num_returns=0).remote
            # It stays inside of this ref's object until this process drops it or dies.
            self._token = handle.open.remote(self.client)
        self.streams: weakref.WeakSet[SendingStream] = weakref.WeakSet()
        self.sender = sender.get()
        self._leaving = self.sender.enter(self)

    def __del__(self) -> None:
        # Missing if the constructor failed.
        leaving = getattr(self, "_leaving", None)
        if leaving is not None:
            self.sender.put(leaving)

    @property
    def handle(self) -> Any:
        """Weak in the interpreter itself, which must not keep itself alive."""
        return self._handle if self.local is None else self.engine.get_runtime_context().current_actor

    def send(self, stream: int, first: int, steps: Sent) -> None:
        if self.destroyed:
            raise self.died("it was destroyed")
        if self.local is not None:
            self.local.serve(stream, first, steps)
        elif self._has_session():
            self._send(stream, first, steps)
        else:
            raise self.died("its session has ended")

    def ask(self, stream: int, first: int, steps: Sent, want: Want) -> Any:
        """Returns what `answer` takes."""
        if self.destroyed:
            raise self.died("it was destroyed")
        if self.local is not None:
            return self.local.serve(stream, first, steps, *want)
        return self._call(stream, first, steps, *want)

    def answer(self, asked: Any) -> Any:
        """Waits without limit. Raises what the step raised, or `InterpreterDiedError`."""
        if self.local is None:
            try:
                asked = brought(self.engine, self.engine.get(asked))
            except Exception as error:
                self._explain(error)
                raise
        return _value_of(asked)

    async def awaited(self, asked: Any) -> Any:
        """As `answer`, in a coroutine. Not for the interpreter itself."""
        try:
            asked = await asked
        except Exception as error:
            self._explain(error)
            raise
        return _value_of(asked)

    def _explain(self, error: Exception) -> None:
        if isinstance(error, self.actor_died):
            raise self.died(error) from error
        text = str(error)
        if any(sign in text for sign in _NO_GPU):
            raise RuntimeError(
                f"the value holds a tensor of a GPU of the interpreter [{self.id[:5]}], and this process has no GPU to put it on: "
                "write v.cpu().fetch() instead of v.fetch()"
            ) from error

    def value_ref(self, stream: int, first: int, steps: Sent, want: Want) -> Any:
        if self.local is not None:
            return self.engine.put(self.local.value(stream, first, steps, *want))
        return self._handle.value.remote(stream, first, steps, *want)

    def do(self, method: Callable[[Interpreter], Result]) -> Result:
        if self.destroyed:
            raise self.died("it was destroyed")
        if self.local is not None:
            return method(self.local)
        try:
            result: Result = self.engine.get(getattr(self._handle, method.__name__).remote())
            return result
        except self.actor_died as error:
            raise self.died(error) from error

    def release(self, ends: list[Any]) -> None:
        if self.local is not None:
            self.local.release(ends)
        elif self._has_session():  # else they have ended with it
            self._handle.release.options(num_returns=0).remote(ends)

    def _has_session(self) -> bool:
        """Calls without a waiter must not start the engine again."""
        return bool(self.engine.is_initialized())

    def destroy(self) -> None:
        """End the interpreter. Later requests from here raise immediately; from elsewhere, once it has ended."""
        self.engine.kill(self.handle)
        self.destroyed = True

    def is_open(self) -> bool:
        """Whether it was not destroyed here, and is of this session of the engine."""
        engine = self.engine
        return not self.destroyed and engine.is_initialized() and engine.get_runtime_context().get_node_id() == self.node

    def died(self, how: object) -> InterpreterDiedError:
        return InterpreterDiedError(self.id, self.name, str(how))


def _value_of(answer: Any) -> Any:
    if type(answer) is Failure:
        answer.throw()
    return answer


# ---------------------------------------------------------------------------------------------- the sender
class Leaving:
    __slots__ = ()


class Sender:
    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        #: Puts a stream with unsent steps, an end: (connection, target, holder, {stream: last step that uses it}), or a `Leaving`. From
        #: finalizers, too.
        self.put = self._queue.put
        self._lock = threading.Lock()
        #: Connections of this process; the thread runs while there are any.
        self._connections = 0
        self._hooked = False
        self._open: weakref.WeakSet[InterpreterConnection] = weakref.WeakSet()

    def enter(self, connection: InterpreterConnection) -> Leaving:
        """The connection puts the returned object when it ends."""
        with self._lock:
            self._open.add(connection)
            self._connections += 1
            if self._connections == 1:
                threading.Thread(target=self._deliver, name="proxy sender", daemon=True).start()
            if not self._hooked:
                # Called before the engine's own handler, while the engine still runs.
                atexit.register(self.finish)
                self._hooked = True
        return Leaving()

    def finish(self) -> None:
        """At exit: wait until all steps are done, as Python waits for threads."""
        for connection in list(self._open):
            if connection.is_open():
                for stream in list(connection.streams):
                    try:
                        stream.finish()
                    except Exception as error:
                        _log.error("a step failed, and the program ended without looking at it", exc_info=error)

    def _deliver(self) -> None:
        get, get_nowait = self._queue.get, self._queue.get_nowait
        while True:
            items = [get()]
            clock.sleep(LINGER)
            try:
                while True:
                    items.append(get_nowait())
            except Empty:
                pass
            ends: dict[InterpreterConnection, list[Any]] = {}
            streams: list[SendingStream] = []
            left = 0
            for item in items:
                if type(item) is tuple:
                    ends.setdefault(item[0], []).append((item[1], item[2], tuple(item[3].items())))
                elif type(item) is Leaving:
                    left += 1
                else:
                    streams.append(item)
            for stream in streams:
                _quietly(stream.send_rest)
            for connection, ended in ends.items():
                _quietly(connection.release, ended)
            # The ended objects hold connections, and the last one's end is an actor's.
            del items, ends, streams, item
            stream = connection = ended = None  # type: ignore[assignment]
            if left:
                with self._lock:
                    self._connections -= left
                    if not self._connections:
                        return


def _quietly(action: Any, *arguments: Any) -> None:
    """Ignores errors: no thread waits, and the next user of the interpreter gets its error."""
    try:
        action(*arguments)
    except Exception:
        pass


sender: ProcessLocal[Sender] = ProcessLocal(Sender)
