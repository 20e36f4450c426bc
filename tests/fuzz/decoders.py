"""Everything in mray that reads what another process has written, one row each.

A row knows whole messages of its kind, and reads one: what comes out is a value or one of the errors that the row names, whatever the bytes
are. `tests/fuzz/test_decoders.py` changes the whole ones at random, `tools/fuzz` looks for what no test has thought of. A new place that
decodes something must be named in `tests/fuzz/places.py`, and so gets a row here.
"""

from __future__ import annotations

import itertools
import json
import marshal
import os
import pickle
import socket
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy

from mray._channel.array_form import decode_array, encode_array
from mray._channel.base import NOTHING
from mray._channel.board import Board
from mray._channel.rendezvous import GroupMember, Meeting
from mray._channel.shm import ReaderEnd, ShmReader, ShmWriter, WriterEnd
from mray._common import messages as m
from mray._common.log import logger
from mray._common.protocol import misfit
from mray._common.version import __version__
from mray._ipc.connection import Connection, encode
from mray._ipc.frames import decode_message, decode_unknown, from_text, to_text
from mray._ipc.kept_sessions import RECORDS, read_records
from mray._ipc.layout import RingLayout
from mray._ipc.output import LONGEST_LINE, LineSplitter, name_marker, note
from mray._ipc.process import start_of
from mray._ipc.reactor import Reactor
from mray._ipc.reaper import ADDRESS
from mray._ipc.ring import RingReader, RingWriter
from mray._ipc.ring_pair import PUBLISHED, RingPair
from mray._ipc.segment import PAGE, Segment, new_nonce, open_memory
from mray._ipc.slots import PLACE, SlotReader
from mray._ipc.table import AWAKE, BYTES, DOZING, ROW_WORDS, ROWS, SPILLED_EVER, STATE, SessionTable
from mray._joining import address
from mray._objects.serializer import deserialize, serialize
from mray._observe.observer import _Reader
from mray._runtime.processes.launch import LaunchedInterpreter, Wrapper
from mray._runtime.session import breakpoints
from mray._runtime.session.driver_output import OutputPrinter
from mray.exceptions import RaySystemError


class Decoder(NamedTuple):
    """One row."""

    #: Whole messages.
    whole: tuple[bytes, ...]
    #: Reads one, and asserts what must hold of what comes out.
    check_read: Callable[[bytes], Any]
    #: The errors that it may raise.
    errors: tuple[type[BaseException], ...]
    #: From which byte on a message is the user's own, which nobody can tell from a changed one; None: nothing is.
    own_from: int | None = None
    #: False: each costs a segment or a file.
    is_cheap: bool = True


_numbers = itertools.count()

MESSAGES: tuple[tuple[Any, ...], ...] = (
    (m.HELLO, m.ROLE_WORKER, "0123456789abcdef", 4242),
    (m.CALL, b"t" * 24, "method", 1, m.PICKLED, b"\x80\x05)}\x86.", None, None, None),
    (m.TASK, b"t" * 24, b"f" * 20, 2, m.SEGMENT, ("/mray-x-1", 200, "feed"), [(b"o" * 28, "beef")], [(0, m.PICKLED, b"N.")], {}, "task"),
    (m.REPLIES, b"t" * 24, [(m.PICKLED, b"N.", None), (m.FAILED, b"N.", [])]),
    (m.LEASE_REQUEST, 7, {"resources": {"CPU": 1.0, "GPU": 0.5}, "env": {"A": "b"}, "label": "task f", "affinity": [0, 1]}),
    (m.ACTOR_CREATE, 3, b"a" * 16, {"resources": {}, "name": None, "max_restarts": -1, "code": b"c", "group": (b"g" * 18, -1)}),
    (m.ACTOR_STATE, b"a" * 16, "dead", "feed", 2, (m.CAUSE_CRASH, "text", 77, -9, None)),
    (m.GROUP_CREATE, 5, b"g" * 18, {"bundles": [{"CPU": 1}], "strategy": "PACK"}),
    (m.ANSWER, 9, True, [{"row": 1.5, "big": 1 << 70, "t": (True, None)}]),
    (m.TOLD, 1, {"work": (True, [])}),
    (m.SPAWN, "feed", {"PATH": "/bin"}),
    (m.INTRODUCE, 5, "0123456789abcdef", True),
    (m.NOT_INTRODUCED, 5, 111, "there is no such process"),
)


# ------------------------------------------------------------------------------------------------ messages
def _read_frame(body: bytes) -> object:
    message = decode_message(body)
    assert type(message) is tuple
    assert isinstance(misfit(message), str)
    return message


def _stream(*, is_unknown: bool, checks_frames: bool) -> Callable[[bytes], object]:
    def read(sent: bytes) -> object:
        heard: list[Any] = []
        gone: list[Connection] = []
        reactor = Reactor()
        here, there = socket.socketpair()
        connection = reactor.register(here, lambda _connection, message: heard.append(message), gone.append)
        connection.is_unknown, connection.checks_frames = is_unknown, checks_frames
        disabled, logger.disabled = logger.disabled, True
        try:
            there.sendall(sent)
            there.shutdown(socket.SHUT_WR)
            while not gone:
                reactor.run_once(None)
            assert connection.closed
            assert all(type(message) is tuple for message in heard)
            return heard
        finally:
            logger.disabled = disabled
            connection.close()
            there.close()
            reactor.close()

    return read


def _read_answer(code: int) -> Callable[[bytes], object]:
    def read(data: bytes) -> object:
        reader = _Reader(code)
        reader.feed(data)
        assert reader.message is None or (reader.message[0] == code and not misfit(reader.message))
        return reader.message

    return read


# --------------------------------------------------------------------------------------------- shared memory
_LAYOUT = RingLayout(entries=4, entry_bytes=256, readers=1, slots=4)


class _Doorbell:
    def ring(self) -> None:
        pass


class _Ring:
    """A ring with a few messages in it, which are short enough to lie in its entries."""

    def __init__(self) -> None:
        name = f"/mray-fuzz-{os.getpid()}-{next(_numbers)}"
        self.segment = Segment.create(name, _LAYOUT.size)
        self.segment.unlink()
        RingWriter.format(self.segment, 0, _LAYOUT)
        self.writer = ShmWriter(WriterEnd(self.segment, 0, _LAYOUT, name, [_Doorbell()]))  # type: ignore[list-item]
        self.name = name
        for value in ("text", b"bytes", numpy.arange(4)):
            assert self.writer.try_write(value)
        self.whole = bytes(self.segment.memory)

    def read(self, memory: bytes) -> object:
        self.segment.memory[:] = memory.ljust(len(self.whole), b"\0")[: len(self.whole)]
        doorbell: Any = _Doorbell()
        reader = ShmReader(ReaderEnd(self.segment, 0, _LAYOUT, 0, self.name, doorbell, lambda error: repr(error).encode()))
        got = []
        try:
            for _ in range(2 * _LAYOUT.entries):
                value = reader.try_read()
                if value is NOTHING:
                    return got
                got.append(value)
            raise AssertionError("a ring gives more messages than it has entries")
        finally:
            reader.close()


class _RingOfPeer:
    """The ring of a connection with a few messages in it."""

    def __init__(self) -> None:
        self.table = SessionTable.create(f"/mray-fuzz-{os.getpid()}-{next(_numbers)}")
        self.table.words[ROW_WORDS + STATE] = AWAKE
        pair = self._pair()
        writing = RingPair.take(pair[1], self.table)
        writing.meet(1)
        bodies = [encode(message)[4:] for message in MESSAGES[:4]]
        entries = (0, bodies[0]), (1, b"".join(encode(message) for message in MESSAGES[:2])), (0, bodies[3]), (0, bodies[2])
        assert [writing.try_put(form, body, 0) for form, body in entries] == [PUBLISHED] * 4
        # The other half is where this process would write itself.
        half = PAGE // 2
        self.whole = bytes(pair[2].memory[half:])
        writing.close()
        pair[0].close()

    def _pair(self) -> tuple[RingPair, str, Any]:
        name = f"/mray-fuzz-{os.getpid()}-{next(_numbers)}"
        pair = RingPair.offer(name, self.table)
        return pair, name, Segment.open(name, writable=True)

    def read(self, memory: bytes) -> object:
        heard: list[Any] = []
        reactor = Reactor()
        here, there = socket.socketpair()
        connection = reactor.register(here, lambda _connection, message: heard.append(message), lambda _connection: None)
        connection.checks_frames = True
        name = f"/mray-fuzz-{os.getpid()}-{next(_numbers)}"
        disabled, logger.disabled = logger.disabled, True
        try:
            assert connection.offer_ring(name, self.table, 1)
            segment = Segment.open(name, writable=True)
            connection.ring_taken(True, 1)
            half = PAGE // 2
            segment.memory[half : half + len(self.whole)] = memory.ljust(len(self.whole), b"\0")[: len(self.whole)]
            for _ in range(8):
                connection.read_ring()
            assert all(type(message) is tuple for message in heard)
            if connection.closed:
                raise ValueError(connection.refused)
            return heard
        finally:
            logger.disabled = disabled
            connection.close()
            there.close()
            reactor.close()


class _Slots:
    """A slot with an array in it."""

    def __init__(self) -> None:
        self.prefix = f"/mray-fuzz-{os.getpid()}-{next(_numbers)}-"
        self.generation = new_nonce()
        self.words = memoryview(bytearray(8 * 32)).cast("Q")

    def place(self) -> bytes:
        return PLACE.pack(1, self.generation, 3, 100)

    def read(self, place: bytes) -> object:
        segment = Segment.create(f"{self.prefix}1.{self.generation:x}", 4096)
        slots = SlotReader(self.prefix, self.words[:], 16, 4)
        try:
            pin, length = slots.open(place)
            assert length <= len(pin)
            del pin
            # Its own line precedes the words of its four slots; all others are somebody else's.
            assert not any(self.words[:8])
            assert not any(self.words[20:])
            return length
        finally:
            segment.unlink()
            segment.close()
            slots.close()


def _head(array: numpy.ndarray[Any, Any]) -> bytes:
    encoded = encode_array(array)
    assert encoded is not None
    return encoded[0] + bytes(encoded[1])


def _read_array(data: bytes) -> object:
    array = decode_array(data, len(data))
    assert array.nbytes <= len(data)
    return array


def _tensors() -> dict[str, Decoder]:
    try:
        import torch

        from mray._channel.tensor_form import decode_tensor, encode_tensor
    except ImportError:
        return {}

    def whole(tensor: Any) -> bytes:
        encoded = encode_tensor(tensor)
        assert encoded is not None
        return encoded[0] + bytes(encoded[1])

    def read(data: bytes) -> object:
        tensor = decode_tensor(bytearray(data))
        assert tensor.nbytes <= len(data)
        return tensor.sum() if tensor.dtype.is_floating_point else None

    seeds = whole(torch.arange(6.0)), whole(torch.arange(6).reshape(2, 3).T)
    return {"tensor": Decoder(seeds, read, (ValueError, TypeError, AttributeError, RuntimeError, struct.error))}


def _packed() -> bytes:
    value = serialize((numpy.arange(40000), b"x" * 70000))
    return value.to_bytes()


def _read_packed(data: bytes) -> object:
    array, text = deserialize(m.PACKED, data)
    assert array.nbytes + len(text) <= 2 * len(data)
    return array


def _read_segment_of(size: int, opened: Callable[[str], Any]) -> Callable[[bytes], object]:
    """The words at the beginning of a segment that has so many bytes, or as many as are given."""

    def read(memory: bytes) -> object:
        name = f"/mray-fuzz-{os.getpid()}-{next(_numbers)}"
        segment = Segment.create(name, size if memory else 4096)
        segment.memory[: min(len(memory), segment.size)] = memory[: segment.size]
        try:
            opened(name).close()
            return None
        finally:
            segment.unlink()
            segment.close()

    return read


_board = Board.create(f"/mray-fuzz-{os.getpid()}-board", 2, 77)
_board.segment.unlink()
_BOARD_WORDS = bytes(_board.segment.memory[:64])


def _read_ring_info(memory: bytes) -> object:
    name = f"/mray-fuzz-{os.getpid()}-{next(_numbers)}"
    segment = Segment.create(name, _LAYOUT.size)
    segment.unlink()
    segment.memory[: len(memory)] = memory[: segment.size]
    try:
        RingReader(segment, 0, _LAYOUT, 0).close()
        assert memory[:64].ljust(64, b"\0")[24:] == _ring.whole[24:64]
        return None
    finally:
        segment.close()


_ring = _Ring()
_ring_of_peer = _RingOfPeer()
_slots = _Slots()


# --------------------------------------------------------------------------------------------- files and text
_MEMBER = GroupMember(1, 2, 5, "feed", os.getpid(), "", "task f", "/mray-x-board")


def _read_member(content: bytes) -> object:
    disabled, logger.disabled = logger.disabled, True
    try:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "g.1.5").write_bytes(content)
            member = Meeting(folder, "group").read("g.1.5")
            assert member is None or (0 <= member.rank < member.world_size and 0 <= member.nonce < 1 << 64)
            return member
    finally:
        logger.disabled = disabled


def _read_address(content: bytes) -> object:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, ADDRESS).write_bytes(content)
        return address.running_in(folder)


def _read_stop(content: bytes) -> object:
    with tempfile.TemporaryDirectory() as session:
        notes = Path(session, breakpoints.FOLDER)
        notes.mkdir()
        (notes / "stop.json").write_bytes(content)
        return list(breakpoints.stops(session))


_RECORD = marshal.dumps({"version": __version__, "pid": 1, "calls": [(b"id", "f", 0.5, 1.5, {"CPU": 1.0})]}, 4)


def _read_record(content: bytes) -> object:
    with tempfile.TemporaryDirectory() as session:
        records = Path(session, RECORDS)
        records.mkdir()
        (records / "a").write_bytes(content)
        return read_records(session)


def _read_lines(data: bytes) -> object:
    splitter = LineSplitter()
    half = len(data) // 2
    lines = [*splitter.feed(data[:half]), *splitter.piece(), *splitter.feed(data[half:]), *splitter.finish()]
    assert sum(len(text) for _name, text in lines) <= len(data) + 1
    assert len(splitter._rest) <= LONGEST_LINE
    return lines


class _Visitor:
    def announce(self, *_what: object) -> None:
        pass


def _read_note(text: bytes) -> object:
    printer = OutputPrinter.__new__(OutputPrinter)
    printer._visitor = _Visitor()  # type: ignore[assignment]
    printer._client, printer._noted = None, 0
    disabled, logger.disabled = logger.disabled, True
    try:
        printer._take(1, m.NOTE_STREAM, "", text.decode("utf-8", "replace"))
    finally:
        logger.disabled = disabled
    return None


# ------------------------------------------------------------------------------------------------ the table
#: A pickle that is read from another place than its beginning fails in many ways.
_OF_PICKLES = (
    *(ValueError, LookupError, TypeError, AttributeError, ImportError, MemoryError, EOFError, OverflowError),
    *(struct.error, pickle.UnpicklingError),
)


class _Rows:
    """A table with a row that a process writes as it likes, between those of others; the node reads it, and clears it in the end."""

    whole = struct.pack("@7Q", AWAKE, 5 << 20, 1 << 20, 0, 3 << 20, 2, 1)

    def __init__(self) -> None:
        self.table = SessionTable.create(f"/mray-fuzz-{os.getpid()}-{next(_numbers)}")
        for row in (1, 2, 3):
            self.table.add_row(row)
        self.table.words[3 * ROW_WORDS + BYTES] = 7

    def read(self, data: bytes) -> object:
        table = self.table
        written = [int.from_bytes(data[at : at + 8].ljust(8, b"\0"), "little") for at in range(0, 56, 8)]
        for word, value in enumerate(written):
            table.words[2 * ROW_WORDS + word] = value
        wrong = table.impossible(2)
        assert bool(wrong) == (any(value > 1 << 46 for value in written[1:]) or written[STATE] > DOZING)
        assert not table.impossible(1)
        assert not table.impossible(3)
        assert all(0 <= table.word(2, word) <= 1 << 46 for word in range(7))
        totals = [table.total(word, 4) for word in range(1, 7)]
        assert totals[BYTES - 1] - table.word(2, BYTES) == 7
        assert table.words[SPILLED_EVER] == 0
        table.clear(2)
        assert table.words[SPILLED_EVER] == totals[SPILLED_EVER - 1]
        table.words[SPILLED_EVER] = 0
        assert not any(table.words[2 * ROW_WORDS : 3 * ROW_WORDS])
        assert table.words[3 * ROW_WORDS + BYTES] == 7
        return None if wrong else written


_rows = _Rows()

DECODERS: dict[str, Decoder] = {
    "frame": Decoder(tuple(marshal.dumps(message) for message in MESSAGES), _read_frame, (ValueError,)),
    "first frame": Decoder(tuple(marshal.dumps(message) for message in MESSAGES[:2]), decode_unknown, (ValueError,)),
    "stream of a stranger": Decoder((b"".join(map(encode, MESSAGES)),), _stream(is_unknown=True, checks_frames=True), ()),
    "stream to the node": Decoder((b"".join(map(encode, MESSAGES)),), _stream(is_unknown=False, checks_frames=True), ()),
    "stream of a peer": Decoder((b"".join(map(encode, MESSAGES)),), _stream(is_unknown=False, checks_frames=False), ()),
    "answer of the node": Decoder((encode(MESSAGES[8]),), _read_answer(m.ANSWER), (ValueError,)),
    "answer of a process": Decoder((encode(MESSAGES[9]),), _read_answer(m.TOLD), (ValueError,)),
    "variable of a worker": Decoder(
        (to_text({"A": "b"}).encode(),), lambda text: from_text("A", text.decode("latin-1"), dict), (ValueError,)
    ),
    "wrapper": Decoder((Wrapper("f", True, ("a",)).encode().encode(),), lambda text: Wrapper.decode(text.decode("latin-1")), (ValueError,)),
    "interpreter": Decoder(
        (LaunchedInterpreter(("python",), {"a": 1}, ("python", ("b",))).encode().encode(),),
        lambda text: LaunchedInterpreter.decode(text.decode("latin-1")),
        (ValueError,),
    ),
    "ring": Decoder((_ring.whole,), _ring.read, (ValueError,)),
    "ring of a peer": Decoder((_ring_of_peer.whole,), _ring_of_peer.read, (ValueError,), is_cheap=False),
    "facts of a ring": Decoder((_ring.whole[:64],), _read_ring_info, (ValueError,)),
    "place of a slot": Decoder((_slots.place(),), _slots.read, (ValueError, FileNotFoundError)),
    "array": Decoder(
        (_head(numpy.arange(10)), _head(numpy.ones((3, 4), "f4", order="F")), _head(numpy.array(["ab", "c"]))),
        _read_array,
        (ValueError, TypeError, SyntaxError, OverflowError, struct.error),
    ),
    **_tensors(),
    "packed value": Decoder((_packed(),), _read_packed, (*_OF_PICKLES, RaySystemError), own_from=40),
    "row of the session's table": Decoder((_rows.whole,), _rows.read, ()),
    "table of the session": Decoder(
        (bytes(64),),
        _read_segment_of(ROWS * ROW_WORDS * 8, lambda name: SessionTable.of(name, open_memory(name, writable=True))),
        (ValueError,),
        is_cheap=False,
    ),
    "board": Decoder(
        (_BOARD_WORDS,), _read_segment_of(_board.segment.size, lambda name: Board.open(name, 2, 77)), (ValueError,), is_cheap=False
    ),
    "file of a member": Decoder((json.dumps(_MEMBER).encode(),), _read_member, (), is_cheap=False),
    "address": Decoder(
        (json.dumps({"session_dir": "/nowhere/session_x", "node_pid": 1, "node_start": 5, "versions": ["3.11", "1"]}).encode(),),
        _read_address,
        (),
        is_cheap=False,
    ),
    "record of an ended session": Decoder((_RECORD,), _read_record, (), is_cheap=False),
    "file of a breakpoint": Decoder(
        (json.dumps({"start": start_of(os.getpid()), "pid": os.getpid()}).encode(),), _read_stop, (), is_cheap=False
    ),
    "output of a worker": Decoder(
        (b"a line\n" + name_marker("Actor(a)") + b"its line\n" + note('{"kind": "gone"}') + b"rest",), _read_lines, ()
    ),
    "note of a worker": Decoder(
        (
            b'{"kind": "gone"}',
            b'{"kind": "breakpoint", "path": "/nowhere", "where": "a.py:1", "wait": false}',
            b'{"kind": "progress", "state": {"uuid": "u", "pid": 1, "closed": true, "x": 0, "desc": "d", "total": 3, "unit": "it"}}',
        ),
        _read_note,
        (),
    ),
}


def read(name: str, data: bytes) -> object:
    """The value that a decoder makes of these bytes; None for an error that it may raise."""
    decoder = DECODERS[name]
    try:
        return decoder.check_read(data)
    except decoder.errors:
        return None
