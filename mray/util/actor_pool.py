"""`ActorPool`: a fixed set of actors that share a queue of calls.

Attributes and the methods `_get_result` and `_return_actor` have Ray's names and signatures, and the methods call each other as Ray's
do, since libraries subclass the class and override them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from mray._api.actor_handle import ActorHandle
from mray._api.object_ref import ObjectRef
from mray._api.verbs import get, wait
from mray._common.places import undone
from mray.exceptions import ActorDiedError

__all__ = ["ActorPool"]

Function = Callable[[ActorHandle, Any], Any]


def _give_back(local: dict[str, Any], _value: Any) -> None:
    """Undo the taking of a result; its actor stays free, or at the next call."""
    self: ActorPool = local["self"]
    made, number = local["made"], local["number"]
    self._index_to_future[number] = made
    self._future_to_actor[_key_of(made)] = number, None
    if self._next_return_index == number + 1:
        self._next_return_index = number


def _give_idle_back(local: dict[str, Any], actor: ActorHandle | None) -> None:
    self: ActorPool = local["self"]
    if actor is not None:
        self._idle_actors.append(actor)


class ActorPool:
    """Actors, and calls for the ones that are free: ``pool.map(lambda actor, value: actor.work.remote(value), values)``.

    A function gets an actor and a value and returns the ref of its call. An actor whose result is an error of its death leaves the
    pool. Not thread-safe.
    """

    def __init__(self, actors: Iterable[ActorHandle]) -> None:
        self._idle_actors: list[ActorHandle] = list(actors)
        #: ref (or tuple of refs) of an untaken result -> number of the call and its actor, None if the actor is free.
        self._future_to_actor: dict[Any, tuple[int, ActorHandle | None]] = {}
        self._index_to_future: dict[int, Any] = {}
        self._next_task_index = 0
        self._next_return_index = 0
        #: Arguments of `submit` for calls that wait for an actor.
        self._pending_submits: list[Any] = []

    # ------------------------------------------------------------------------------------ many
    def map(self, fn: Function, values: Iterable[Any]) -> Iterator[Any]:
        """Call `fn` with an actor and each value; yields the results in the order of the values.

        Results of earlier calls are dropped. Calls are sent as results are taken, so the iterator must be exhausted. An
        exception of a call is raised when its turn comes.
        """
        self._forget()
        for value in values:
            self.submit(fn, value)
        return self._results(self.get_next)

    def map_unordered(self, fn: Function, values: Iterable[Any]) -> Iterator[Any]:
        """As `map`, in the order in which results arrive."""
        self._forget()
        for value in values:
            self.submit(fn, value)
        return self._results(self.get_next_unordered)

    def _results(self, take: Callable[[], Any]) -> Iterator[Any]:
        while self.has_next():
            yield take()

    def _forget(self) -> None:
        while self.has_next():
            try:
                self.get_next_unordered(timeout=0, ignore_if_timedout=True)
            except TimeoutError:
                pass

    # ------------------------------------------------------------------------------------ one by one
    def submit(self, fn: Function, value: Any) -> None:
        """Call ``fn(actor, value)`` with the next free actor."""
        if not self._idle_actors:
            self._pending_submits.append((fn, value))
            return
        actor = self._idle_actors.pop()
        made = fn(actor, value)
        self._future_to_actor[_key_of(made)] = (self._next_task_index, actor)
        self._index_to_future[self._next_task_index] = made
        self._next_task_index += 1

    def has_next(self) -> bool:
        """Whether untaken results remain."""
        return bool(self._future_to_actor)

    @undone(_give_back)
    def get_next(self, timeout: float | None = None, ignore_if_timedout: bool = False) -> Any:
        """Return the next result, in the order of `submit`; raises what its call raised.

        After `timeout` seconds, TimeoutError: the call is still the next one, or is dropped with `ignore_if_timedout`. StopIteration
        when no call remains, ValueError after `get_next_unordered` has taken a later one.
        """
        if not self.has_next():
            raise StopIteration("No more results to get")
        if self._next_return_index >= self._next_task_index:
            raise ValueError("It is not allowed to call get_next() after get_next_unordered().")
        made = self._index_to_future[self._next_return_index]
        # After an interruption, such as Ctrl-C, the result can be taken again.
        late = bool(wait(_refs_of(made), num_returns=len(_refs_of(made)), timeout=timeout)[1])
        if late and not ignore_if_timedout:
            raise TimeoutError("Timed out waiting for result")
        del self._index_to_future[self._next_return_index]
        self._next_return_index += 1
        number, actor = self._future_to_actor.pop(_key_of(made))  # noqa: RUF059  (`_give_back` reads it)
        return self._take(made, actor, late)

    @undone(_give_back)
    def get_next_unordered(self, timeout: float | None = None, ignore_if_timedout: bool = False) -> Any:
        """The result of the call that ends next. `timeout` and errors as in `get_next`."""
        if not self.has_next():
            raise StopIteration("No more results to get")
        first = {_refs_of(made)[0]: made for made in self._future_to_actor}
        ready, _pending = wait(list(first), num_returns=1, timeout=timeout)
        if not ready and not ignore_if_timedout:
            raise TimeoutError("Timed out waiting for result")
        made = first[ready[0]] if ready else next(iter(self._future_to_actor))
        number, actor = self._future_to_actor.pop(made)
        made = self._index_to_future.pop(number)
        self._next_return_index = max(self._next_return_index, number + 1)
        return self._take(made, actor, not ready)

    def _take(self, made: Any, actor: ActorHandle | None, late: bool) -> Any:
        if late:
            if actor is not None:
                self._return_actor(actor)
            raise TimeoutError(f"Timed out waiting for result. The task {made} has been ignored.")
        return get(made) if actor is None else self._get_result(made, actor)

    def _get_result(self, future: Any, actor: ActorHandle) -> Any:
        alive = True
        try:
            return get(future)
        except ActorDiedError:
            alive = False
            raise
        finally:
            if alive:
                self._return_actor(actor)  # subclasses written for older versions of Ray take one argument
            else:
                self._return_actor(actor, is_alive=False)

    def _return_actor(self, actor: ActorHandle, is_alive: bool = True) -> None:
        """Mark an actor free, unless dead, and submit the next waiting call."""
        if is_alive:  # a dead one would get every call that follows
            self._idle_actors.append(actor)
        if self._pending_submits and self._idle_actors:
            self.submit(*self._pending_submits.pop(0))

    # ------------------------------------------------------------------------------------ actors
    def has_free(self) -> bool:
        """Whether an actor is free and no call waits for one."""
        return bool(self._idle_actors) and not self._pending_submits

    @undone(_give_idle_back)
    def pop_idle(self) -> ActorHandle | None:
        """Take a free actor out of the pool; None without one."""
        return self._idle_actors.pop() if self.has_free() else None

    def push(self, actor: ActorHandle) -> None:
        """Add an actor; ValueError when it is in the pool already."""
        if actor in self._idle_actors or any(actor == busy for _number, busy in self._future_to_actor.values()):
            raise ValueError("Actor already belongs to current ActorPool")
        self._return_actor(actor)


def _key_of(made: Any) -> Any:
    return tuple(made) if isinstance(made, list) else made


def _refs_of(made: Any) -> list[ObjectRef]:
    return list(made) if isinstance(made, (list, tuple)) else [made]
