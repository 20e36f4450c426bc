"""Channel whose tensors stay on their GPU: a ring in shared memory says where they are.

    writer                                                             reader
    value ── its device tensors ── copied into the pool ══ the same memory, mapped ══▶ tensors that are views of it
        └─ the rest, with each tensor's lease, region, offset, shape, dtype and point ── ring ──▶ put together
    one tensor of a known kind ── its lease, use and number ── ring ─────────────────▶ one more tensor over the view
    the writer's stream reaches a point of its timeline  ─ ─ ─ ─ ─ ─ ─▶ the reader's stream waits for it
    that memory is written again afterwards  ◀─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ the last view dies: a point of the reader's stream

The host never waits for a device.

The only reader of a message may write to it; several readers each make their own copy on the device.

*Through pinned memory*, between GPUs without peer access, tensors pass through host memory that both have registered.

Where no trial (`mray._graph.trials`) has shown whether the reader can open memory of the writer's process, tensors first go through
the host, and the reader tries the facts of one that a message carries (`WithTrial`).

Arrays of other libraries and subclasses of tensors go through the host, with one warning per class.

Rejected: handing over the framework's own tensors, as torch.multiprocessing does: each has its own handle and event, and beyond a
thousand shared tensors the sender synchronizes its stream instead.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from mray._api.dag_output import Outputs
from mray._channel.shm import AGAIN_ON_DEVICE, DEVICE, FIRST_ON_DEVICE
from mray._common.device_tensors import carriers
from mray._common.log import logger
from mray._device.device import DeviceFaultError, DeviceOutOfMemoryError, NotExportedError, Platform
from mray._device.device_faults import report
from mray._device.exports import ExportedMessage, ExportedTensor, TensorExports
from mray._device.foreign import tell_of_foreign
from mray._device.imports import TensorImports
from mray._device.memory_pool import all_pools
from mray._device.staging import Staged
from mray._device.timelines import Peers, retire_later, sweep_retired
from mray._gpu.channel_leases import LeaseHolder, Lender
from mray._gpu.outputs import EdgeOutputs
from mray._gpu.remembered import AGAIN, LentMessage, RememberedLeases
from mray._inside.transports import NOTHING, ChannelReader, Failed, ReaderEnd, ShmReader, ShmWriter, WriterEnd
from mray._inside.values import Serialized
from mray._ipc.frames import decode_short
from mray._ipc.ring_loans import sweep_closed


class WithTrial(NamedTuple):
    """A value, and the facts of a tensor with which the reader tries what it can open."""

    value: Any
    info: ExportedTensor


class CudaIpcWriter(ShmWriter):
    __slots__ = (
        *("_device_seen", "_exports", "_lender", "_name", "_opens", "_outputs", "_peers", "_platform", "_readers", "_remembered"),
        *("_sweeps", "_told", "_unsent", "_words"),
    )

    def __init__(self, end: WriterEnd, *, platform: Platform, proven: bool = True, pinned: bool = False) -> None:
        super().__init__(end)
        self._platform = platform
        self._name = end.name
        self._lender = Lender(end)
        self._exports = TensorExports(platform, self._lend, self._lender.sweep, pinned=pinned)
        self._peers = Peers()
        #: Leases of the message that is being written.
        self._unsent: list[int] = []
        #: Whether leases that are not remembered are out.
        self._sweeps = False
        #: None: the reader cannot remember leases.
        self._remembered = RememberedLeases(platform, self._exports, self._lender, self._peers)
        self._outputs = EdgeOutputs(platform, self._remembered) if end.layout.readers == 1 and not pinned else None
        self._readers = end.layout.readers
        #: Reader -> whether it can open what it gets, by its latest note.
        self._words: dict[int, bool] = {}
        #: Whether the readers can open this process's memory; None: unknown.
        self._opens = True if proven else None
        #: The device of a tensor that went through the host, for the next message's trial; -1: none.
        self._device_seen = -1
        #: Bytes of tensors that `last_size` has reported.
        self._told = 0

    def try_write(self, value: Any) -> bool:
        if not super().try_write(value):
            return False
        if self._sweeps:
            # Last, so that the reader does not wait for it.
            self._lender.sweep()
            self._sweeps = len(self._lender.out) > len(self._remembered)
        return True

    def _write_any(self, value: Any) -> None:
        try:
            if self._opens is None:
                value, _kept = self._with_trial(value)
            outputs = self._outputs
            if outputs is not None:
                handed = None if outputs.last is None else outputs.handed(value)
                payload = self._remembered.again(value, self._unsent, handed)
                if payload is not None:
                    self._put(AGAIN_ON_DEVICE, payload)
                    self._unsent.clear()
                    return
            if self._opens and self._platform.is_tensor(value):
                kind = None if outputs is None else self._remembered.may_add(value)
                info = self._take(value)
                if info is not None:
                    self._exports.seal()
                    self._put(DEVICE if kind is None else FIRST_ON_DEVICE, marshal.dumps(info))
                    self._unsent.clear()
                    if kind is not None:
                        self._remembered.add(kind, info)
                    return
            tell_of_foreign(value, self._platform, self._name)
            super()._write_any(value)
            self._unsent.clear()
        except DeviceOutOfMemoryError as error:
            raise DeviceOutOfMemoryError(f"{self._name}: {error}") from error
        except DeviceFaultError as error:
            report(error)
            raise
        finally:
            if self._unsent:
                self._cancel()

    def _cancel(self) -> None:
        self._exports.seal()
        self._remembered.forget()
        self._sweeps = True
        for lease in self._unsent:
            self._lender.cancel_loan(lease)
        self._unsent.clear()

    def _serialize(self, value: Any) -> Serialized:
        outer = carriers.take
        carriers.take = self._take
        try:
            serialized = super()._serialize(value)
        finally:
            carriers.take = outer
        self._exports.seal()
        return serialized

    def _with_trial(self, value: Any) -> tuple[Any, Any]:
        """The value as sent while it is unknown whether readers can open it, and the tensor that must live until the message is
        complete.
        """
        self._lender.sweep()  # reads their notes
        if self._opens is not None or self._lender.out or self._device_seen < 0:
            return value, None
        device, self._device_seen = self._platform.devices[self._device_seen], -1
        try:
            tensor = device.empty("uint8", (1,))
            info = self._exports.add(tensor)
        except NotExportedError as error:
            self._cancel()
            self._opens = False
            reason = str(error)  # the error itself has frames, with the tensor
            logger.warning("%s carries tensors through host memory: its writer cannot export memory of the GPU: %s", self._name, reason)
        except MemoryError:
            self._cancel()  # another message may find more room
        else:
            if info is not None:
                return WithTrial(value, info), tensor
        return value, None

    def _take(self, tensor: Any) -> ExportedTensor | None:
        if not self._opens:
            if self._opens is None:
                self._device_seen = self._platform.info(tensor)[1].device
            self._exports.refused += 1
            return None
        try:
            return self._exports.add(tensor)
        except DeviceOutOfMemoryError:
            if not self._remembered.forget():
                raise
            return self._exports.add(tensor)

    def _lend(self, message: ExportedMessage) -> tuple[int, int] | None:
        lent = LentMessage(message, self._peers, self._heed)
        lease = self._lender.lend(lent)
        if lease is None and self._remembered.forget():
            lease = self._lender.lend(lent)
        if lease is not None:
            self._unsent.append(lease[0])
            self._sweeps = True
        return lease

    def _heed(self, reader: int, opens: bool) -> None:
        if self._words.get(reader) == opens:
            return
        self._words[reader] = opens
        if not all(self._words.values()):
            self._opens = False
        elif len(self._words) == self._readers:
            self._opens = True

    def outputs(self) -> Outputs | None:
        return self._outputs

    def last_size(self) -> int:
        sent, self._told = self._exports.sent - self._told, self._exports.sent
        return super().last_size() + sent

    def statistics(self) -> dict[str, int]:
        """Handed: sent in place (`mray.dag.output`); refused: sent through the host; unopened: 1 if a reader cannot open memory of this
        process.
        """
        exports = self._exports
        return {
            **super().statistics(),
            "device_copied": exports.copied,
            "device_handed": self._remembered.handed,
            "device_refused": exports.refused,
            "device_leases": self._lender.held(),
            "device_bytes": exports.held,
            "device_unopened": int(self._opens is False),
        }

    def close(self) -> None:
        try:
            self._exports.close()
            self._remembered.forget()
            self._lender.close(partial(retire_later, self._peers, sweep=False))
        finally:
            super().close()
        trim_pools()


class CudaIpcReader(ShmReader):
    """When the writer dies before a sent tensor could be opened, the notification of its death follows instead of a message."""

    __slots__ = ("_early", "_imports", "_is_ahead", "_is_cut_off", "_lender_is_dead", "_name")

    def __init__(self, end: ReaderEnd, *, platform: Platform, name: str = "an edge") -> None:
        self._name = name
        borrower = LeaseHolder(end)
        failure = end.failure
        self._is_cut_off = False
        self._lender_is_dead = borrower.lender_is_dead

        def explain(error: BaseException) -> bytes:
            if isinstance(error, DeviceFaultError):
                report(error)
            if isinstance(error, RuntimeError) and borrower.lender_is_dead():
                self._is_cut_off = True
            return failure(error)

        super().__init__(end._replace(failure=explain))

        self._imports = TensorImports(platform, borrower.end, end.layout.leases // 2, copies=end.layout.readers > 1, gone=borrower.gone)
        self._is_ahead = False
        #: The next message's value, and its copies to settle, if it was read already.
        self._early: list[tuple[Any, list[Staged]]] = []

    def try_read(self) -> Any:
        if not self._is_ahead:
            return self._read()
        staged = self._imports.staged
        if self._early:
            value, early = self._early.pop()
            staged += early
        else:
            value = self._read()
        if value is not NOTHING and staged:
            # The copy of the next message, if it has arrived, runs while this one is used.
            current = staged.copy()
            staged.clear()
            following = self._read()
            if following is not NOTHING:
                self._early.append((following, staged.copy()))
            staged[:] = current
        return value

    def _read(self) -> Any:
        outer = carriers.bring
        carriers.bring = self._imports.bring
        try:
            value = super().try_read()
            if value.__class__ is WithTrial:
                value = self._try(value)
            return NOTHING if self._is_cut_off else value
        finally:
            carriers.bring = outer
            self._imports.end_message()

    def _try(self, message: WithTrial) -> Any:
        reason = self._imports.try_bring(message.info)
        if reason and not self._lender_is_dead():
            logger.warning("%s carries tensors through host memory: its reader cannot open memory of the GPU: %s", self._name, reason)
        return message.value

    def ready(self) -> bool:
        return bool(self._early) or (not self._is_cut_off and super().ready())

    def failed(self) -> bool:
        return isinstance(self._early[0][0], Failed) if self._early else super().failed()

    def position(self) -> int:
        return super().position() - len(self._early)

    def ahead(self) -> tuple[ChannelReader, Callable[[], None]]:
        self._is_ahead = self._imports.is_ahead = True
        return self, self.settle

    def settle(self) -> None:
        self._imports.settle()

    def _decode(self, form: int, payload: bytes) -> Any:
        if form == DEVICE:
            return self._imports.bring(*decode_short(payload))
        if form == FIRST_ON_DEVICE:
            return self._imports.bring_first(decode_short(payload))
        if form == AGAIN_ON_DEVICE:
            return self._imports.again(*AGAIN.unpack(payload))
        return super()._decode(form, payload)

    def close(self) -> None:
        super().close()
        self._early.clear()
        self._imports.close()


def trim_pools() -> bool:
    """Free device memory of closed edges that peers have closed and devices have finished with. Returns whether none is left.

    Any thread. Does not wait for peers, but closing memory waits for this process's queued work on its devices.
    """
    is_ended = sweep_closed()
    if not sweep_retired() or not is_ended:
        return False
    try:
        left = [pool for pool in all_pools() if not pool.trim()]
        return not left
    except DeviceFaultError as error:
        report(error)
        return False
