"""The values of refs, for user code: `get`, `wait`, and callbacks. In any thread; one that waits reads meanwhile (`mray._ipc.reactor`)."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Collection, Sequence
from functools import partial
from itertools import compress
from types import FrameType
from typing import TYPE_CHECKING, Any

from mray._api.object_ref import ObjectRef
from mray._common import messages as m
from mray._common.bridge import Cancel, nothing
from mray._common.clock import monotonic
from mray._common.log import logger
from mray._common.uncollected import uncollected
from mray._objects.ownership import MOST_SURVEYED, Completion, Countdown, Entry, Survey, split_ready, why_unknown
from mray._objects.remote_error import unpickle_error
from mray._objects.serializer import deserialize
from mray._objects.store import is_spilled, read
from mray._runtime.client.late import why_late
from mray._runtime.client.long_lists import LongList, LongLists
from mray._runtime.objects.unhandled_errors import mark_handled
from mray.exceptions import GetTimeoutError, ObjectLostError

if TYPE_CHECKING:
    from mray._runtime.client.cancelling import Cancelling
    from mray._runtime.client.long_waits import LongWaits
    from mray._runtime.connections.part import Row
    from mray._runtime.objects.borrowing import Borrowing
    from mray._runtime.objects.owner import Owner
    from mray._runtime.objects.tensor_contract import Tensors
    from mray._runtime.objects.unhandled_errors import UnhandledErrors

#: Seconds that a task waits for values that may be ready before it gives its CPUs back: an owner that is not stuck in C code has answered
#: by then.
GRACE_SECONDS = 0.05
#: Objects that the row of a thread's wait names.
_MOST_AWAITED = 8


class Objects:
    def __init__(
        self,
        owner: Owner,
        borrowing: Borrowing,
        tensors: Callable[[], Tensors],
        cancelling: Cancelling,
        unhandled: UnhandledErrors,
        long_waits: LongWaits,
    ) -> None:
        client = self._client = owner.client
        self._owner = owner
        self._borrowing = borrowing
        self._tensors = tensors
        self._cancelling = cancelling
        self._unhandled = unhandled
        self._long_waits = long_waits
        self.long_lists = LongLists(client.lock, client.reactor.call_later)
        #: The next blocking `get` warns that it blocks an event loop.
        self.warns = False
        #: Called by a thread that has waited, before user code runs on.
        self.after_wait: Callable[[], None] | None = None
        #: `AwaitedRefs` by event loop; and whether some thread always reads.
        self.awaited: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self.reads_always = self._client.reactor.reads_always

    def location_of(self, ref: ObjectRef) -> tuple[int | None, bool]:
        """(bytes of the value, or None while it is pending; whether it lies on disk)."""
        entry = _entry_of(ref)
        if entry.form is None:
            return None, False
        if entry.form == m.SEGMENT:
            return abs(entry.payload[1]), is_spilled(entry.payload)
        return len(entry.payload), False

    def value_of(self, entry: Entry) -> Any:
        """The entry is ready. Raises its error."""
        form = entry.form
        if form == m.PICKLED:
            return deserialize(form, entry.payload)
        if form == m.FAILED:
            mark_handled(entry)
            raise unpickle_error(entry.payload)
        if form == m.SEGMENT or form is None:  # it is being recomputed for another thread
            return self.read_segment(entry, entry.owner, entry.object_id)
        return deserialize(form, entry.payload)

    def read_segment(
        self, entry: Entry, owner: str | None, object_id: bytes | None, failed: Callable[[Any], BaseException] = unpickle_error
    ) -> Any:
        """The value in a segment, recomputed if it was lost; raises the error if it cannot be. In any thread but the reading one.

        `failed` turns the payload of an entry that has failed meanwhile into the error to raise.
        """
        while True:
            form, payload = entry.form, entry.payload
            if form == m.FAILED:
                raise failed(payload)
            if form == m.SEGMENT:
                try:
                    return read(payload, entry)
                except FileNotFoundError:
                    with self._client.lock:
                        self._borrowing.revive(entry)
                    if entry.payload is payload and entry.form == m.SEGMENT:
                        raise self._owner.missing_error(owner, payload[0], object_id) from None
            elif form is None:
                self.wait_as_user(entry.ready, None)  # the task that recomputes it may need this task's CPUs
            else:
                return deserialize(form, payload)

    def get(self, refs: Sequence[ObjectRef], timeout: float | None, through_host: bool = False) -> list[Any]:
        """Values in order; the first known error is raised although others are pending. For `through_host` see `Tensors.values`."""
        entries = [ref._entry for ref in refs]
        own = self._client.entry
        if not {*map(type, entries)} <= {own}:
            ref = next(ref for ref, entry in zip(refs, entries, strict=True) if type(entry) is not own)
            raise ValueError(f"Ray objects whose owner is unknown: {ref}: {why_unknown(ref)}.")
        if timeout is not None:
            self._borrowing.revive_all(entries)  # which counts as waiting
        for entry in entries:
            if entry.form is None:
                self._await_all(entries, timeout)
                break
        forms = {entry.form for entry in entries}
        if forms == _PICKLED:
            return [deserialize(m.PICKLED, entry.payload) for entry in entries]
        value_of = self.value_of
        if m.FAILED in forms:
            for entry in entries:
                mark_handled(entry)
            value_of(next(entry for entry in entries if entry.form == m.FAILED))
        if m.TENSORS in forms:
            return self._tensors().values(refs, value_of, timeout, through_host)
        try:
            return [value_of(entry) for entry in entries]
        except ObjectLostError:  # the second attempt's error names the object
            for ref in refs:
                ref._entry.object_id = ref.binary()
            return [value_of(entry) for entry in entries]

    def get_one(self, ref: ObjectRef, timeout: float | None) -> Any:
        entry = ref._entry
        if type(entry) is self._client.entry and entry.form != m.FAILED and entry.owner is None:
            if entry.form is None:
                if self.warns:
                    self.warns = False
                    _warn_of_blocking_get()
                if not self.wait_as_user(entry.ready, timeout, None, (entry,)):
                    raise self._late((entry,), timeout)
            if entry.form == m.PICKLED:
                return deserialize(m.PICKLED, entry.payload)
            if entry.form == m.SEGMENT and timeout is None:
                return self.read_segment(entry, None, ref._id)
        return self.get((ref,), timeout)[0]

    def _await_all(self, entries: Sequence[Entry], timeout: float | None) -> None:
        if self.warns:
            self.warns = False
            _warn_of_blocking_get()
        if len(entries) == 1:
            (entry,) = entries
            most_absences = None
            if entry.owner is not None and not entry.fetching:
                with self._client.lock:
                    most_absences = self._ask_for(entries)
            ready = self.wait_as_user(entry.ready, timeout, most_absences, entries)
        else:
            with self._client.lock:
                most_absences = self._ask_for(entries)
            completion = Completion(entries)
            ready = self.wait_as_user(completion.is_reached, timeout, most_absences, entries)
            if completion.failed is not None:
                for entry in entries:
                    mark_handled(entry)
                self.value_of(completion.failed)
        if not ready:
            raise self._late(entries, timeout)

    def _late(self, entries: Sequence[Entry], timeout: float | None) -> GetTimeoutError:
        why = self._long_waits.why_stuck(entries) or why_late(self._client, entries, timeout or 0)
        return GetTimeoutError(f"Get timed out: some object(s) not ready after {timeout} s.{why}")

    def _ask_for(self, entries: Sequence[Entry], spare: int = 0) -> int | None:
        """Request the values of borrowed objects. Client's lock held.

        Returns the `most_absences` of `wait_as_user`, if all of these values, or all but `spare`, may be ready at their owners.
        """
        asks = self._client.process_host.lends()
        for entry in dict.fromkeys(entries):  # a ref that is given twice is waited for once
            if entry.form is None:
                if entry.owner is None or entry.fetching:
                    spare -= 1  # it is being computed, or was absent when it was requested
                else:
                    self._borrowing.fetch(entry, asks)
        return self._borrowing.absences + spare if asks and spare >= 0 else None

    def wait_as_user(
        self,
        predicate: Callable[[], bool],
        timeout: float | None,
        most_absences: int | None = None,
        entries: Collection[Entry] = (),
        spare: int | None = None,
        source: Entry | None = None,
    ) -> bool:
        """Wait on behalf of user code, perhaps for these entries, or all but `spare`; a task gives its CPUs back meanwhile. `source` is the
        entry of the call that yields the awaited value.

        Not while values arrive that are ready at their owners: a further worker would be started for each. With `most_absences` the task
        keeps its CPUs until the owners have reported more absent values than that, for at most `GRACE_SECONDS`.
        """
        reactor = self._client.reactor
        unblock = None
        try:
            if timeout == 0:
                return reactor.wait_until(predicate, 0)
            if most_absences is not None:
                borrowing = self._borrowing
                deadline = None if timeout is None else monotonic() + timeout
                grace = GRACE_SECONDS if timeout is None else min(timeout, GRACE_SECONDS)
                reactor.wait_until(lambda: predicate() or borrowing.absences > most_absences, grace)
                if predicate():
                    return True
                if deadline is not None:
                    timeout = max(0.0, deadline - monotonic())
            unblock = self._client.process_host.block()
            patience = self._long_waits.patience
            if patience is None or (timeout is not None and timeout <= patience):
                is_true = reactor.wait_until(predicate, timeout)
            else:
                left = None if timeout is None else timeout - patience
                awaited = entries if source is None else (source,)
                is_true = reactor.wait_until(predicate, patience) or self._long_waits.wait(predicate, left, awaited, spare)
            if self.after_wait is not None:
                self.after_wait()
            return is_true
        except KeyboardInterrupt:
            self._cancelling.interrupted(entries)
            raise
        finally:
            if unblock is not None:
                unblock()

    def wait(self, refs: Sequence[ObjectRef], num_returns: int, timeout: float | None) -> tuple[list[ObjectRef], list[ObjectRef]]:
        own = self._client.entry
        is_long = self.long_lists.is_long(refs, num_returns)
        if is_long and (listed := self.long_lists.find(refs, own)) is not None:  # type: ignore[arg-type]  # long ones are lists
            return self._wait_again(listed, num_returns, timeout)
        if self._borrowing.meets_strangers and {type(ref._entry) for ref in refs} != {own}:
            return self._wait_among_strangers(refs, num_returns, timeout)
        try:
            ready, rest = split_ready(refs, num_returns)
        except AttributeError:  # ids that no session created have no entry
            return self._wait_among_strangers(refs, num_returns, timeout)
        if len(ready) == num_returns:
            if is_long:
                self.long_lists.keep(LongList(rest.copy()))
            return self._handled(ready), rest
        entries = [ref._entry for ref in refs]
        countdown = Survey(entries) if num_returns == len(ready) + 1 and len(entries) <= MOST_SURVEYED else Countdown()
        most_left = len(entries) - num_returns
        with self._client.lock:
            watched = countdown.to_watch(entries)
            most_absences = self._ask_for(entries if self._client.process_host.lends() else watched, most_left)
            for entry in watched:
                if entry.form is None:
                    countdown.watch(entry)
        try:
            if countdown.left > most_left:
                self.wait_as_user(lambda: countdown.left <= most_left, timeout, most_absences, entries, most_left)
        finally:
            with self._client.lock:
                countdown.end(entries)
        ready, rest = split_ready(refs, num_returns)
        if is_long:
            self.long_lists.keep(LongList(rest.copy()))
        return self._handled(ready), rest

    def _wait_again(self, listed: LongList, num_returns: int, timeout: float | None) -> tuple[list[ObjectRef], list[ObjectRef]]:
        """As `wait`, for the refs that an earlier one has left."""
        entries = listed.entries
        try:
            with self._client.lock:
                places = listed.take(num_returns)
                most_absences = None
                if len(places) < num_returns:
                    listed.put_back(places)
                    if listed.asks:
                        most_absences = self._ask_for(tuple(entries), len(entries) - num_returns)
                        listed.asks = False
            if len(places) < num_returns:
                self.wait_as_user(lambda: listed.count >= num_returns, timeout, most_absences, entries, len(entries) - num_returns)
                with self._client.lock:
                    places = listed.take(num_returns)
            ready, rest = listed.split(places)
        except BaseException:
            self.long_lists.end(listed)
            raise
        self.long_lists.keep(listed)
        return self._handled(ready), rest

    def _handled(self, ready: list[ObjectRef]) -> list[ObjectRef]:
        if self._unhandled.any:
            for ref in ready:
                mark_handled(ref._entry)
        return ready

    def _wait_among_strangers(
        self, refs: Sequence[ObjectRef], num_returns: int, timeout: float | None
    ) -> tuple[list[ObjectRef], list[ObjectRef]]:
        """As `wait`, where some refs belong to no session or an ended one, and are never ready."""
        are_known = [type(ref._entry) is self._client.entry for ref in refs]
        known = list(compress(refs, are_known))
        if len(known) < num_returns:
            stranger = refs[are_known.index(False)]
            others = f" Of these refs {len(known)} can be ready." if len(refs) > 1 else ""
            raise ValueError(f"Ray object whose owner is unknown: {stranger}: {why_unknown(stranger)}.{others}")
        ready = set(self.wait(known, num_returns, timeout)[0])
        return [ref for ref in refs if ref in ready], [ref for ref in refs if ref not in ready]

    def then(self, ref: ObjectRef, callback: Callable[[], None], *, soon: bool = True) -> Cancel:
        """Call back once, from the reading thread and without the lock, when the value is ready. See `Backend.then`."""
        entry, client = ref._entry, self._client
        if type(entry) is not client.entry:
            callback()  # it requests the value, and gets the error
            return nothing
        with client.lock:
            self._borrowing.revive(entry)
            if entry.form is None:
                if entry.owner is not None:
                    self._borrowing.fetch(entry)

                def came(_entry: Entry) -> None:
                    client.reactor.defer(partial(self.then, ref, callback, soon=soon))  # the value may have been lost again

                if soon and not self.reads_always:
                    client.reactor.wake_background_reader()
                return partial(self._cancel, entry.then(came))
        callback()
        return nothing

    def waits(self) -> list[Row]:
        """Each thread that waits for values here: how many are missing, and the origins of some. Client's lock held."""
        code = type(self).wait_as_user.__code__
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        found = []
        with uncollected:
            for ident, innermost in sys._current_frames().items():
                frame: FrameType | None = innermost
                while frame is not None and (frame.f_code is not code or frame.f_locals.get("self") is not self):
                    frame = frame.f_back
                entries = () if frame is None else tuple(frame.f_locals.get("entries") or filter(None, (frame.f_locals.get("source"),)))
                if entries:
                    pending = [entry for entry in entries if entry.form is None]
                    on = [_origin(entry) for entry in pending[:_MOST_AWAITED]]
                    found.append({"thread": names.get(ident, ""), "count": len(pending), "on": on})
        return found

    def _cancel(self, cancel: Cancel) -> None:
        with self._client.lock:
            cancel()

    def on_out_of_scope(self, ref: ObjectRef, callback: Callable[[bytes], None]) -> None:
        """Call back with the object's id, from the reading thread without the lock, once no process holds a ref of it."""
        self._borrowing.check(ref)
        entry = _entry_of(ref)
        if entry.owner is not None:
            raise ValueError(f"{ref} is owned by another process: that one alone knows when it goes out of scope.")
        weakref.finalize(entry, self._client.reactor.defer, partial(callback, ref.binary())).atexit = False
        self._client.reactor.wake_background_reader()


def _warn_of_blocking_get() -> None:
    # Ray Serve sets this attribute of Ray's module where its own processes need no warning.
    if not getattr(sys.modules.get("ray._private.worker"), "blocking_get_inside_async_warned", False):
        logger.warning(
            "Using blocking ray.get inside async actor. This blocks the event loop. Please use `await` on object ref with "
            "asyncio.gather if you want to yield execution to the event loop instead."
        )


def _origin(entry: Entry) -> Row:
    if entry.task is None:
        return {"task": "", "actor_id": b"", "process": entry.owner or "", "object_id": entry.object_id}
    origin: Row = entry.task.source.origin(entry.task)
    return origin


_PICKLED = {m.PICKLED}


def _entry_of(ref: ObjectRef) -> Any:
    return ref._entry
