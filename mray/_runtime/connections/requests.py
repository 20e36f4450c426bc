"""Numbered requests, to the node or to a peer, and their answers. The client's lock is held, except where stated otherwise."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

from mray._common.bridge import Cancel
from mray._ipc.connection import Connection
from mray._runtime.connections.ends import Ended, Ends
from mray._runtime.connections.part import Part


class Answer:
    """The answer to one request. Read without the lock once `ready`."""

    __slots__ = ("_callbacks", "_is_set", "connection", "error", "value")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.value: Any = None
        self.error: BaseException | None = None
        self._is_set = False
        self._callbacks: list[Callable[[], object]] = []

    def ready(self) -> bool:
        return self._is_set

    def then(self, callback: Callable[[], object]) -> Cancel:
        self._callbacks.append(callback)
        if self._is_set:
            self._call_back()
        return partial(self._forget, callback)

    def _forget(self, callback: Callable[[], object]) -> None:
        with contextlib.suppress(ValueError):  # it has been called
            self._callbacks.remove(callback)

    def result(self) -> Any:
        """The value; raises the error instead, if any. Call when `ready`."""
        try:
            if self.error is not None:
                raise self.error
            return self.value
        finally:
            # Breaks a cycle through the error's traceback, which would keep the callers' handles alive.
            del self

    def set(self, value: Any, error: BaseException | None = None) -> None:
        self.value, self.error = value, error
        self._is_set = True
        self._call_back()

    def _call_back(self) -> None:
        while self._callbacks:
            try:
                callback = self._callbacks.pop()
            except IndexError:  # another thread has called the last one
                return
            callback()


class Requests(Part):
    def __init__(self, ends: Ends) -> None:
        self._ends = ends
        self._waiting: dict[int, Answer] = {}
        self._numbers = 0

    def send(self, connection: Connection, code: int, *fields: Any) -> Answer:
        """Send ``(code, number, *fields)``; the answer is set on arrival, or when the peer exits."""
        answer = Answer(connection)
        if connection.closed and connection.process:
            answer.set(None, self._ends.owner_error(connection.process))
            return answer
        self._numbers += 1
        self._waiting[self._numbers] = answer
        if not connection.closed:  # else it is the node's: `all_lost` follows with how the session has ended
            connection.send((code, self._numbers, *fields))
        return answer

    def settle(self, number: int, value: Any, error: BaseException | None) -> bool:
        """Resolve a request. False: no thread waits for it any more."""
        answer = self._waiting.pop(number, None)
        if answer is not None:
            answer.set(value, error)
        return answer is not None

    def forget(self, answer: Answer) -> None:
        """Drop the requests with this answer, for which no thread waits any more."""
        for number in [number for number, waiting in self._waiting.items() if waiting is answer]:
            del self._waiting[number]

    def connection_ended(self, connection: Connection, error: Exception | None, unread: bool) -> None:
        """Fail the requests over a broken connection. Without an error the process's end fails them."""
        if error is not None:
            for number in [number for number, answer in self._waiting.items() if answer.connection is connection]:
                self.settle(number, None, error)

    def process_ended(self, end: Ended) -> None:
        for number in [number for number, answer in self._waiting.items() if answer.connection.process == end.process]:
            self.settle(number, None, self._ends.owner_error(end.process))

    def all_lost(self, error: BaseException) -> None:
        for number in tuple(self._waiting):
            self.settle(number, None, error)
