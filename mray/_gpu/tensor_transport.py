"""Tensors that stay with the process that created them until a reader needs them: ``@mray.method(tensor_transport=...)``.

In every client; as holder and as receiver::

    holder (an actor, or the process that put it)        owner of the ref                  receiver (another actor, a get)
    freeze: the tensors in `_held`, by object id ------> REPLY with form TENSORS
            the rest of the value, pickled                 payload, below ---- argument --> begin
    _on_fetch <------------------------------------------------------------ TENSORS_FETCH --+
       a copy of the tensors, lent ----- TENSORS_BROUGHT: (form, payload, lease) ---------> the rest, with these tensors
    the lease ends <------------------------------------------------------------- RELEASE --+ when the last view dies
    _drop <----------------------------- TENSORS_FREE ---+ when the last ref dies

A payload of form TENSORS is ``(holder's process, its actor, class and pid, transport, metadata of a program's own transport, form,
payload of the rest)``. In the holder itself the tensors are found by reference, and nothing is copied.

The receiver borrows a loan as an object of the holder, so the exit of either process ends it. CPU tensors lie in a segment that
receivers map copy-on-write and share, unless the tensors have been written to meanwhile.

A tensor is not copied before a receiver fetches it, so writes to it change the tensors of later receivers. The holder answers in its
reading thread.

A stream that waits for the kernels of a dead holder continues, over undefined contents. So a call with the tensors as arguments
checks, when its value is pickled, whether they ever arrived (`TensorStore.why_lost`). Tensors that were got, and those that outlive
the call, are not checked.

Rejected: sending tensors ahead when the ref is passed on, as Ray does. Each of the two processes would wait for a dead one; here only
the receiver does, and the kernel notifies it.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from mray._api.object_ref import ObjectRef
from mray._common import messages as m
from mray._common.beside import GPUS
from mray._common.clock import monotonic
from mray._common.device_tensors import carriers
from mray._common.ids import new_object_id
from mray._common.kept import os
from mray._common.log import logger
from mray._common.tensor_transports import TensorTransport, tensor_transport
from mray._decide.caller.ledger import Ledger
from mray._device.device import DeviceOutOfMemoryError, NotExportedError, NotOpenedError
from mray._device.exports import ExportedTensor
from mray._device.foreign import tell_of_foreign
from mray._device.imports import Awaited
from mray._device.platform import platform
from mray._gpu.device_loans import DeviceLoans, UnreachableError, on_streams, streams_of
from mray._gpu.registered_transports import (
    Encoded,
    Prepared,
    decode_transport,
    encode_transport,
    encoded_name,
    forget_pickles,
    receive,
)
from mray._gpu.tensor_calls import check_enabled, keep_tensors, warn_if_sent_back
from mray._inside.client import Client, Connection
from mray._inside.values import serialize
from mray._objects.ownership import Entry, Guard
from mray._objects.remote_error import pickle_error, unpickle_error
from mray._objects.serializer import deserialize
from mray._objects.store import mapped, read
from mray._runtime.connections.deaths import lost_error, tensors_error
from mray._runtime.connections.ends import Ended
from mray._runtime.connections.part import Part
from mray._runtime.connections.requests import Answer
from mray._runtime.objects.owner import INLINE_BYTES
from mray.exceptions import GetTimeoutError, OwnerDiedError

if TYPE_CHECKING:
    from mray._common.invocations import ArgumentValue

#: Fetches for calls that have not begun.
MOST_AHEAD = 8
#: Seconds in which other processes are notified of an exit.
_GRACE = 1.0
#: The transport whose tensors must not pass through the host.
_ON_DEVICE_ONLY = "CUDA_IPC"
#: A form: a value in a segment that is mapped already.
_MAPPED = -1


class Held:
    """The tensors of one object in their holder."""

    __slots__ = ("busy", "copy", "dropped", "on_device_only", "prepared", "streams", "tensors")

    def __init__(self, tensors: list[Any], transport: TensorTransport, prepared: Prepared | None) -> None:
        self.tensors = tensors
        self.prepared = prepared
        #: Device -> the stream that they were created on.
        self.streams = streams_of(tensors) if transport.on_device else {}
        self.on_device_only = transport.name == _ON_DEVICE_ONLY
        #: Copies in progress.
        self.busy = 0
        self.dropped = False
        #: The copy lent to receivers; its lease; the tensors' versions when it was made.
        self.copy: tuple[weakref.ref[Entry], bytes, tuple[int, ...]] | None = None


class TensorFetch:
    """Tensors in flight; created by `TensorStore.begin`."""

    __slots__ = ("_discard", "answer", "awaited", "for_get", "is_own", "object_id", "payload", "tensors")

    def __init__(self, object_id: bytes, payload: tuple[Any, ...], for_get: bool, discard: Callable[[Answer], None]) -> None:
        self._discard = discard
        self.object_id = object_id
        self.is_own = type(payload[4]) is tuple
        self.for_get = for_get
        self.payload = payload
        self.answer: Answer | None = None
        self.tensors: list[Any] | None = None
        #: The points that streams here wait for before they use the tensors.
        self.awaited: list[Awaited] = []

    def __del__(self) -> None:
        if self.tensors is None and self.answer is not None:
            self._discard(self.answer)


class TensorStore(Part):
    """The tensors that a process holds for others, and its fetches of others' tensors. Methods take the client's lock unless noted."""

    def __init__(self, client: Client) -> None:
        client.late(GPUS)  # a fault of a device ends this process
        self._client = client
        self._owner = client.owner
        self._borrowing = client.borrowing
        of_borrowing, *others = client.ends.followers
        client.ends.followers = (of_borrowing, self.process_ended, *others)
        first, *rest = client.hangup_followers
        client.hangup_followers = (first, self.connection_ended, *rest)
        if client.role == m.ROLE_DRIVER:
            forget_pickles()
        self._held: dict[bytes, Held] = {}
        #: Ids of objects that other processes own.
        self._kept: Ledger[bytes] = Ledger()
        #: A tensor's `id` -> the number of objects that have it; all are alive.
        self._objects: dict[int, int] = {}
        self._loans = DeviceLoans(client.reactor)
        #: Whether every export of device memory has succeeded.
        self._exports = True
        #: Fetches for queued calls by object id, the longest waiting first.
        self._ahead: dict[bytes, TensorFetch] = {}
        client.from_peers.on(
            {
                m.TENSORS_FETCH: self._on_fetch,
                m.TENSORS_BROUGHT: self._on_brought,
                m.TENSORS_FREE: self._on_free,
                m.TENSORS_DONE: self._loans.on_done,
            },
            {m.TENSORS_FETCH: self._fetch_failed, m.TENSORS_BROUGHT: client.fail_answer},
        )

    # ------------------------------------------------------------------------------------ as holder
    def freeze(
        self, value: Any, encoded: Encoded, object_id: bytes, owner: str, caller: Connection | None, actor: tuple[bytes, str]
    ) -> tuple[int, Any, list[Any] | None]:
        client = self._client
        transport = decode_transport(encoded)
        tensors: list[Any] = []
        packed = serialize(value, leave=tensors, leave_type=transport.data_type)
        if transport.custom is None:
            check_tensors(tensors, transport)
        found = platform() if transport.on_device else None
        if found is not None:
            tell_of_foreign(value, found, f"tensor_transport={transport.name.lower()!r}")
        prepared = None if transport.custom is None or not tensors else Prepared(transport, object_id, tensors)
        is_small = packed.size <= INLINE_BYTES
        try:
            form, rest = (packed.form, packed.to_bytes()) if is_small else (m.SEGMENT, self._owner.store_value(packed, owner))
        except BaseException:
            if prepared is not None:
                prepared.end()
            raise
        if not tensors:
            return form, rest, packed.refs
        with client.lock:
            self._held[object_id] = Held(tensors, transport, prepared)
            for tensor in tensors:
                self._objects[id(tensor)] = self._objects.get(id(tensor), 0) + 1
            if caller is not None and not self._kept.lend(object_id, caller, object_id):
                self.drop(object_id)
        said = b"" if prepared is None else prepared.pickled()
        payload = (client.process, actor[0], actor[1], os.getpid(), encoded, said, form, rest)
        return m.TENSORS, payload, packed.refs

    def put(self, value: Any, transport: TensorTransport, actor: tuple[bytes, str]) -> ObjectRef:
        client = self._client
        object_id = new_object_id()
        form, payload, refs = self.freeze(value, encode_transport(transport), object_id, client.process, None, actor)
        entry = client.entry()
        entry.transport = transport.name
        if form == m.TENSORS:
            self.own(entry, object_id, payload, None)
        else:
            entry.guard = self._owner.segments.guard(payload) if form == m.SEGMENT else None
        entry.complete(form, payload, refs)
        return ObjectRef(object_id, entry)

    def wait_tensor_freed(self, tensor: Any, timeout: float | None) -> None:
        objects = self._objects
        key = id(tensor)
        self._client.reactor.run_deferred()
        if key in objects and not self._client.reactor.wait_until(lambda: key not in objects, timeout):
            raise TimeoutError(
                f"Tensor {tensor} not freed from RDT object store after {timeout}s. The tensor will not be freed until all ObjectRefs "
                "containing the tensor have gone out of scope."
            )

    def _on_fetch(self, connection: Connection, number: int, object_id: bytes, through_host: bool) -> None:
        # Without the lock: copies take time.
        self._client.reactor.defer(lambda: self._answer(connection, number, object_id, through_host))

    @staticmethod
    def _fetch_failed(peer: Connection, _failure: Exception, payload: bytes, number: int, *_fields: Any) -> None:
        peer.send((m.TENSORS_BROUGHT, number, m.FAILED, payload, b""))

    def _answer(self, connection: Connection, number: int, object_id: bytes, through_host: bool) -> None:
        client = self._client
        with client.lock:
            held = self._held.get(object_id)
            if held is not None:
                held.busy += 1
        if held is None:
            self._send(connection, number, m.FAILED, pickle_error(lost_error(object_id)), None, b"")
            return
        try:
            if held.streams and not through_host and self._lend_on_device(held, connection, number):
                return
            form, payload, entry, lease = self._lend(held)
        except BaseException as error:
            self._send(connection, number, m.FAILED, pickle_error(error), None, b"")
        else:
            self._send(connection, number, form, payload, entry, lease)
        finally:
            with client.lock:
                held.busy -= 1
                self._forget_if_done(held)

    def _lend_on_device(self, held: Held, connection: Connection, number: int) -> bool:
        """Answer with a loan of device memory. Returns False if there is none and the tensors may pass through the host."""
        if not self._exports and not held.on_device_only:
            return False
        try:
            self._send_on_device(held, connection, number)
            return True
        except NotExportedError as error:
            if held.on_device_only:
                raise ValueError(
                    f"tensor_transport='cuda_ipc' from pid {os.getpid()}: {error} Write 'shm', which goes through host memory."
                ) from error
            self._exports = False
            logger.warning("Tensors go through host memory from pid %d, which cannot export memory of its GPU: %s", os.getpid(), error)
        except DeviceOutOfMemoryError:  # the host may have room
            if held.on_device_only:
                raise
        return False

    def _send_on_device(self, held: Held, connection: Connection, number: int) -> None:
        with self._client.lock:
            info, numbers = self._loans.lend(connection, held.tensors, held.streams)
            connection.send((m.TENSORS_BROUGHT, number, m.PICKLED, info, numbers))

    def _lend(self, held: Held) -> tuple[int, Any, Entry | None, bytes]:
        """A copy of the tensors for a receiver: (form, payload, entry, lease)."""
        client = self._client
        versions = _versions(held.tensors)
        if held.copy is not None:
            entry, lease, known = held.copy[0](), held.copy[1], held.copy[2]
            if entry is not None and known == versions:
                return m.SEGMENT, entry.payload, entry, lease
        with on_streams(held.streams):
            form, payload, _refs = self._owner.freeze(held.tensors, client.process)
        if form != m.SEGMENT:
            return form, payload, None, b""
        entry = client.entry()
        entry.guard = self._owner.segments.guard(payload)
        entry.complete(form, payload)
        lease = new_object_id()
        if versions is not None:
            held.copy = weakref.ref(entry), lease, versions
        return form, payload, entry, lease

    def _send(self, connection: Connection, number: int, form: int, payload: Any, entry: Entry | None, lease: bytes) -> None:
        client = self._client
        with client.lock:
            if connection.closed:
                return
            if entry is not None:
                self._borrowing.lend(connection, lease, entry)
            connection.send((m.TENSORS_BROUGHT, number, form, payload, lease))

    def _on_free(self, connection: Connection, object_ids: list[bytes]) -> None:
        for object_id in object_ids:
            self._kept.returned(connection, object_id)
            self.drop(object_id)

    def connection_ended(self, connection: Connection, error: Exception | None, unread: bool) -> None:
        self._loans.hung_up(connection)

    def process_ended(self, end: Ended) -> None:
        for object_id in self._kept.ended(end.process):
            self.drop(object_id)
        self._loans.ended(end.process)

    def close(self) -> None:
        self._loans.close()

    def drop(self, object_id: bytes) -> None:
        held = self._held.pop(object_id, None)
        if held is not None:
            held.dropped = True
            self._forget_if_done(held)

    def _forget_if_done(self, held: Held) -> None:
        if not held.dropped or held.busy:
            return
        for tensor in held.tensors:
            left = self._objects[id(tensor)] - 1
            if left:
                self._objects[id(tensor)] = left
            else:
                del self._objects[id(tensor)]
        held.tensors = []
        if held.prepared is not None:
            self._client.reactor.defer(held.prepared.end)  # the program's code: without the lock
        self._client.reactor.wake()  # wake its waiters

    # ------------------------------------------------------------------------------------ as owner
    check_enabled = staticmethod(check_enabled)
    keep = staticmethod(keep_tensors)
    warn_if_sent_back = staticmethod(warn_if_sent_back)

    def own(self, entry: Entry, object_id: bytes, payload: Any, keep: Any) -> None:
        if payload[6] == m.SEGMENT:
            self._owner.segments.claim(payload[7])
        entry.guard = Guard(self._client.reactor.defer, self._let_go, object_id, payload, keep)

    def transport_of(self, ref: ObjectRef) -> str | None:
        """The transport of a ref whose tensors stay with their holder, else None."""
        entry = ref._entry
        return encoded_name(entry.payload[4]) if entry.form == m.TENSORS else entry.transport if entry.form is None else None

    def set_target(self, ref: ObjectRef, place: Callable[[list[Any]], list[Any]], device: str | None) -> None:
        entry = ref._entry
        name = self.transport_of(ref)
        if name is None:
            raise ValueError(f"Ref {ref} is not an RDT object.")
        transport = tensor_transport(name)
        if device is not None and transport is not None and device not in transport.devices:
            raise ValueError(f"Tensor transport backend {name} does not support fetching onto target device {device}.")
        entry.target = place

    def _let_go(self, object_id: bytes, payload: tuple[Any, ...], _keep: Any) -> None:
        client = self._client
        if payload[6] == m.SEGMENT:
            self._owner.segments.free(payload[7][0], payload[7][2])
        with client.lock:
            if payload[0] == client.process:
                self.drop(object_id)
                return
            connection = client.peers.get(payload[0])
            if connection is not None and not connection.closed:
                connection.post((m.TENSORS_FREE, [object_id]))
                client.reactor.post_later(connection)

    # ------------------------------------------------------------------------------------ as receiver
    def begin(self, object_id: bytes, payload: Sequence[Any], *, through_host: bool = False, for_get: bool = False) -> TensorFetch:
        """Ask the holder for the tensors of an object, or find them here."""
        client = self._client
        fetch = TensorFetch(object_id, tuple(payload), for_get, self._discard)
        with client.lock:
            if payload[0] == client.process:
                held = self._held.get(object_id)
                fetch.tensors = None if held is None else held.tensors
                return fetch
            if fetch.is_own and not through_host:
                return fetch
            connection = client.try_peer(payload[0])
            if connection is not None:
                # A peer whose memory could not be opened once is not asked for it again.
                through_host = through_host or (connection.peer.opens_nothing and payload[4] != _ON_DEVICE_ONLY)
                fetch.answer = client.request(connection, m.TENSORS_FETCH, object_id, through_host)
        return fetch

    def _discard(self, answer: Answer) -> None:
        def discard() -> None:
            with self._client.lock:
                if not answer.ready():
                    self._client.requests.forget(answer)
                elif answer.value is not None and type(answer.value[2]) is list:
                    self._loans.refuse(answer.connection, answer.value[2])

        self._client.reactor.defer(discard)

    def look_ahead(self, arguments: Sequence[ArgumentValue]) -> None:
        for value in arguments:
            if value.form == m.TENSORS and value.object_id not in self._ahead and type(value.payload[4]) is str:
                while len(self._ahead) >= MOST_AHEAD:
                    self._ahead.pop(next(iter(self._ahead)), None)
                self._ahead[value.object_id] = self.begin(value.object_id, value.payload)

    def look_back(self, arguments: Sequence[ArgumentValue] | None) -> None:
        for value in arguments or ():
            if value.form == m.TENSORS:
                self._ahead.pop(value.object_id, None)

    def tensors_of(self, fetch: TensorFetch, timeout: float | None = None) -> list[Any]:
        if fetch.tensors is None:
            fetch.tensors = self._receive(fetch, timeout)
        return fetch.tensors

    def _receive(self, fetch: TensorFetch, timeout: float | None) -> list[Any]:
        client = self._client
        answer = fetch.answer
        if answer is None and fetch.is_own and fetch.payload[0] != client.process:
            try:
                return receive(fetch.payload[4], fetch.object_id, fetch.payload[5], for_get=fetch.for_get, timeout=timeout)
            except TimeoutError as error:
                raise GetTimeoutError(f"Get timed out: the tensors of an object did not arrive within {timeout} s.") from error
        if answer is not None:
            if not client.reactor.wait(answer, timeout):
                with client.lock:
                    client.requests.forget(answer)
                raise GetTimeoutError(f"Get timed out: the tensors of an object did not arrive within {timeout} s.")
            if answer.error is None:
                form, payload, lease = answer.value
                if form == m.FAILED:
                    raise unpickle_error(payload)
                if form == m.SEGMENT:
                    try:
                        found: list[Any] = read(payload, lease)
                    except FileNotFoundError:
                        raise self._who_died(fetch) from None
                elif form == _MAPPED:
                    found = deserialize(m.PACKED, None, payload)
                elif lease is not None:
                    found = self._bring(fetch, answer.connection, payload, lease)
                else:
                    found = deserialize(form, payload)
                return found
            if not isinstance(answer.error, OwnerDiedError):
                raise answer.error
        if client.fatal is not None:
            raise client.fatal
        raise self._who_died(fetch)

    def _bring(self, fetch: TensorFetch, connection: Connection, info: list[ExportedTensor], numbers: list[int]) -> list[Any]:
        """Tensors lent in device memory; through host memory if they cannot be reached and the transport allows it."""
        try:
            found, fetch.awaited = self._loans.bring(connection, info, numbers)
            return found
        except (UnreachableError, NotOpenedError) as error:
            # Memory of a dead process may be freed before its connection closes.
            if isinstance(error, NotOpenedError) and self._client.reactor.wait_until(lambda: connection.closed, _GRACE):
                raise self._who_died(fetch) from None
            _process, _actor, name, pid, transport = fetch.payload[:5]
            if transport == _ON_DEVICE_ONLY:
                raise ValueError(
                    f"tensor_transport='cuda_ipc' from {name or 'the process'} (pid {pid}) to pid {os.getpid()}: {error} Give both actors "
                    "the same GPU, or GPUs with peer access to each other; or write 'shm', which goes through host memory."
                ) from error
            if isinstance(error, NotOpenedError):
                connection.peer.opens_nothing = True
                logger.warning(
                    "Tensors go through host memory from %s (pid %d) to pid %d, which cannot open memory of its GPU: %s",
                    *(name or "the process", pid, os.getpid(), error),
                )
        return self._receive(self.begin(fetch.object_id, fetch.payload, through_host=True), None)

    def _on_brought(self, connection: Connection, number: int, form: int, payload: Any, lease: Any) -> None:
        client = self._client
        if type(lease) is list:
            if not client.requests.settle(number, (form, payload, lease), None):
                self._loans.refuse(connection, lease)
            return
        # Afterwards the lease ends with the entry, also if no thread waits for it any more.
        entry = self._borrowing.borrowed(connection, lease, form, payload) if lease else None
        if form == m.SEGMENT and payload[1] > 0 and entry is not None:
            # The name is removed when the lender dies; `read` explains a missing one.
            with contextlib.suppress(FileNotFoundError):
                form, payload = _MAPPED, mapped(payload, entry)
        client.requests.settle(number, (form, payload, entry), None)

    def _who_died(self, fetch: TensorFetch) -> BaseException:
        client = self._client
        process, actor_id, class_name, pid = fetch.payload[:4]
        if process == client.process:
            return lost_error(fetch.object_id)
        if not actor_id:
            return client.ends.owner_error(process, fetch.object_id)
        return client.actors.end_of_process(actor_id, class_name, process) or tensors_error(actor_id, class_name, pid, fetch.object_id)

    @staticmethod
    def awaited(arguments: Sequence[ArgumentValue]) -> list[TensorFetch]:
        """The fetches that `why_lost` must check; they do not keep the tensors."""
        found = [value.payload for value in arguments if value.form == m.TENSORS and value.payload.awaited]
        for fetch in found:
            fetch.tensors = []
        return found

    def why_lost(self, fetches: Iterable[TensorFetch]) -> BaseException | None:
        lost = [fetch for fetch in fetches if any(region.has_lost(offset, number) for region, offset, number in fetch.awaited)]
        if not lost:
            return None
        answer = lost[0].answer
        assert answer is not None
        self._client.reactor.wait_until(lambda: answer.connection.closed, _GRACE)
        return self._who_died(lost[0])

    # ------------------------------------------------------------------------------------ values
    def begin_arguments(self, arguments: Sequence[ArgumentValue]) -> list[ArgumentValue]:
        begun: dict[bytes, TensorFetch] = {}
        ready: list[ArgumentValue] = []
        for value in arguments:
            if value.form == m.TENSORS:
                object_id = value.object_id
                if object_id not in begun:
                    ahead = object_id in self._ahead
                    begun[object_id] = self._ahead.pop(object_id) if ahead else self.begin(object_id, value.payload)
                ready.append(value._replace(payload=begun[object_id]))
            else:
                ready.append(value)
        return ready

    def argument(self, fetch: TensorFetch, owner: str) -> Any:
        client = self._client
        tensors = self.tensors_of(fetch)
        entry = None
        if fetch.payload[6] == m.SEGMENT:
            # Views of the rest may outlive the call: borrow the object.
            with client.lock:
                entry = self._borrowing.entry_of(fetch.object_id, owner)
                entry.complete(m.TENSORS, fetch.payload)
        return self._together(fetch, tensors, entry)

    def values(self, refs: Sequence[ObjectRef], value_of: Callable[[Entry], Any], timeout: float | None, through_host: bool) -> list[Any]:
        deadline = None if not timeout or timeout < 0 else monotonic() + timeout
        fetches: dict[bytes, TensorFetch] = {}
        objects = [(ref.binary(), ref._entry) for ref in refs]
        for object_id, entry in objects:
            if entry.form == m.TENSORS and object_id not in fetches:
                self._check_get(entry, through_host)
                fetches[object_id] = self.begin(object_id, entry.payload, through_host=through_host, for_get=True)
        found: list[Any] = []
        for object_id, entry in objects:
            if entry.form != m.TENSORS:
                found.append(value_of(entry))
                continue
            fetch = fetches[object_id]
            try:
                tensors = self.tensors_of(fetch, None if deadline is None else max(0.0, deadline - monotonic()))
            except GetTimeoutError:
                raise GetTimeoutError(f"Get timed out: some object(s) not ready after {timeout} s.") from None
            lost = self.why_lost([fetch])
            if lost is not None:
                raise lost
            if entry.target is not None and entry.payload[0] != self._client.process:
                tensors = entry.target(tensors)
            found.append(self._together(fetch, tensors, entry))
        return found

    def _check_get(self, entry: Entry, through_host: bool) -> None:
        transport = decode_transport(entry.payload[4])
        if through_host or transport.one_sided or entry.payload[0] == self._client.process:
            return
        raise ValueError(
            f"ray.get is not allowed on RDT objects using the two-sided transport {transport.name}. Either use a one-sided RDT transport "
            "or pass _use_object_store=True to ray.get to fetch the object through the object store instead."
        )

    @staticmethod
    def _together(fetch: TensorFetch, tensors: list[Any], entry: Entry | None) -> Any:
        form, rest = fetch.payload[6:8]
        with _bringing(tensors):
            if form != m.SEGMENT:
                return deserialize(form, rest)
            assert entry is not None
            try:
                return read(rest, entry)
            except FileNotFoundError:
                raise lost_error(fetch.object_id) from None


@contextlib.contextmanager
def _bringing(tensors: list[Any]) -> Iterator[None]:
    """Context manager: unpickled placeholders become the tensors of the list, in this thread."""
    outer = carriers.bring
    carriers.bring = tensors.__getitem__
    try:
        yield
    finally:
        carriers.bring = outer


def _versions(tensors: list[Any]) -> tuple[int, ...] | None:
    """torch's version counter of each tensor; None without one."""
    try:
        return tuple(tensor._version for tensor in tensors)  # noqa: SLF001  (torch's)
    except (AttributeError, RuntimeError):
        return None


def device_type(tensor: Any) -> str:
    """``"cpu"``, ``"cuda"``..."""
    device = getattr(tensor, "device", None)
    return "null" if isinstance(device, int) else str(getattr(device, "type", device)).partition(":")[0]


def check_tensors(tensors: list[Any], transport: TensorTransport) -> None:
    """Raise ValueError unless the transport carries tensors of these devices; RuntimeError for one of a device that requires grad."""
    if transport.on_device and any(getattr(tensor, "requires_grad", False) for tensor in tensors):
        raise RuntimeError(
            "A tensor that requires grad cannot be opened by other actors: the history of its computation stays behind, and they could not "
            "propagate gradients through it. Return tensor.detach()."
        )
    kinds = {device_type(tensor) for tensor in tensors}
    wrong = sorted(kind for kind in kinds if kind not in transport.devices)
    if not wrong:
        return
    if len(kinds) > 1:
        raise ValueError(
            f"All tensors in an RDT object must have the same device type. These are on {' and '.join(sorted(kinds))}, and "
            f"{transport.name} carries those of {' and '.join(transport.devices)}."
        )
    raise ValueError(f"Tensor transport backend {transport.name} does not support tensor transfer on device {wrong[0]}.")
