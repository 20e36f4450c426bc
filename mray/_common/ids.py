"""Ids: their parts, and how a process creates new ones. Any thread. The sizes are Ray's, so that programs may take ids apart::

    JobID       4   the driver's number
    ActorID    16   12 unique bytes, job id
    TaskID     24    8 unique bytes, actor id (12 bytes of 0xff and the job id for a task that is no actor's)
    ObjectRef  28   task id, 4-byte index of the return value, little endian
    others     28   unique bytes

Process ids have 16 hex digits. The last four are the session's, and so are the last two unique bytes of an actor's id: a ref or handle
of another session is recognized.

The unique part of a task id is a counter that starts at a random 63-bit number in each process. Inside mray ids are ``bytes``.
"""

from __future__ import annotations

import builtins
import struct
import zlib
from itertools import count
from typing import TypeVar

from mray._common.kept import os

_Id = TypeVar("_Id", bound="BaseID")

JOB_SIZE = 4
ACTOR_SIZE = 16
TASK_SIZE = 24
OBJECT_SIZE = 28

#: Replaces the actor in the id of a task that belongs to none.
NO_ACTOR = b"\xff" * 12

# The driver's, once this process has joined a session.
_job = (1).to_bytes(JOB_SIZE, "little")
_no_actor = NO_ACTOR + _job
#: Hex digits of a process's id that are its session's.
_MARK = 4
#: Index of a task's first return value.
FIRST = b"\x01\x00\x00\x00"
#: Index of every `put` object.
PUT = b"\x01\xe1\xf5\x05"

_TASK = struct.Struct("<Q16s")
_OBJECT = struct.Struct("<Q16s4s")
_INDEX = struct.Struct("<I")


#: The range of ids of one process.
_SPAN = 1 << 40


def _start() -> int:
    return int.from_bytes(os.urandom(8), "little") >> 1


_first = _start()
# `next` of a counter is one C call, and so atomic.
_next = count(_first).__next__


def _after_fork() -> None:
    global _first, _next
    _first = _start()
    _next = count(_first).__next__


os.register_at_fork(after_in_child=_after_fork)


def set_job(job: bytes) -> None:
    """Ids that this process creates afterwards belong to this job."""
    global _job, _no_actor
    _job, _no_actor = job, NO_ACTOR + job


def new_task_id(actor: bytes | None = None) -> bytes:
    """`actor`: the actor whose method it is."""
    return _TASK.pack(_next(), actor or _no_actor)


def first_number() -> int:
    """This process's first id, for `is_from`."""
    return _first


def is_from(task_id: bytes, first: int) -> bool:
    """Whether the process with this first id has created the task id."""
    return 0 <= int.from_bytes(task_id[:8], "little") - first < _SPAN


def new_object_id() -> bytes:
    return _OBJECT.pack(_next(), _no_actor, PUT)


def return_id(task: bytes, index: int) -> bytes:
    """The id of a task's return value; the first has index 1."""
    return task + _INDEX.pack(index)


def session_mark(session: str) -> str:
    """The digits shared by the processes of a session with this directory or name."""
    return f"{zlib.crc32(os.path.basename(session).encode('utf-8', 'replace')) & 0xFFFF:04x}"


def new_process_id(mark: str) -> str:
    return os.urandom(6).hex() + mark


def is_of_session_of(process: str, other: str) -> bool:
    """Whether two processes are of one session; wrong once in 65,536 pairs of sessions."""
    return process[-_MARK:] == other[-_MARK:]


def new_actor_id(process: str = "0" * _MARK) -> bytes:
    """A new actor's id, by default of no session."""
    return os.urandom(ACTOR_SIZE - JOB_SIZE - _MARK // 2) + bytes.fromhex(process[-_MARK:]) + _job


def is_actor_of_session_of(actor_id: bytes, process: str) -> bool:
    return actor_id[:-JOB_SIZE].hex()[-_MARK:] == process[-_MARK:]


def new_placement_group_id() -> bytes:
    return os.urandom(18 - JOB_SIZE) + _job


def worker_id_of(process: str) -> bytes:
    return bytes.fromhex(process) + b"\x00" * (OBJECT_SIZE - 8)


class BaseID:
    """Bytes of a fixed length. Immutable, hashable, equal to ids of its own class only."""

    __slots__ = ("_id",)
    _SIZE = OBJECT_SIZE

    def __init__(self, id: bytes) -> None:  # Ray's name
        if not isinstance(id, bytes):
            raise TypeError(f"Unsupported type: {type(id)}, expected bytes")
        if len(id) != self._SIZE:
            raise ValueError(f"ID string needs to have length {self._SIZE}, got {len(id)}")
        self._id = id

    @classmethod
    def size(cls) -> int:
        return cls._SIZE

    @classmethod
    def from_binary(cls: type[_Id], id_bytes: bytes) -> _Id:
        return cls(id_bytes)

    @classmethod
    def from_hex(cls: type[_Id], hex_id: str | bytes) -> _Id:
        """Parse hex digits. Raises ValueError for a wrong length."""
        return cls(bytes.fromhex(hex_id.decode() if isinstance(hex_id, bytes) else hex_id))

    @classmethod
    def from_random(cls: type[_Id]) -> _Id:
        return cls(os.urandom(cls._SIZE))

    @classmethod
    def nil(cls: type[_Id]) -> _Id:
        """The id of nothing: all bits set."""
        return cls(b"\xff" * cls._SIZE)

    def is_nil(self) -> bool:
        return self._id == b"\xff" * self._SIZE

    def binary(self) -> bytes:
        return self._id

    def hex(self) -> str:
        return self._id.hex()

    def __bytes__(self) -> bytes:
        return self._id

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._id == other._id

    def __hash__(self) -> int:
        return hash(self._id)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._id.hex()})"

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._id,)


class UniqueID(BaseID):
    """An id without parts."""

    __slots__ = ()


class JobID(BaseID):
    """A driver's number."""

    __slots__ = ()
    _SIZE = JOB_SIZE

    @classmethod
    def from_int(cls, value: builtins.int) -> JobID:
        return cls(value.to_bytes(JOB_SIZE, "little"))

    def int(self) -> builtins.int:
        return builtins.int.from_bytes(self._id, "little")


class ActorID(BaseID):
    """An actor's id; ends with its job's."""

    __slots__ = ()
    _SIZE = ACTOR_SIZE

    @property
    def job_id(self) -> JobID:
        return JobID(self._id[-JOB_SIZE:])


class TaskID(BaseID):
    """A task's id; ends with its actor's."""

    __slots__ = ()
    _SIZE = TASK_SIZE

    def actor_id(self) -> ActorID:
        return ActorID(self._id[-ACTOR_SIZE:])

    def job_id(self) -> JobID:
        return JobID(self._id[-JOB_SIZE:])


class NodeID(UniqueID):
    """The id of the node."""

    __slots__ = ()


class WorkerID(UniqueID):
    """The id of a worker or driver process."""

    __slots__ = ()


class ClusterID(UniqueID):
    """The id of a session."""

    __slots__ = ()


class FunctionID(UniqueID):
    """The id of shipped code."""

    __slots__ = ()


class ActorClassID(UniqueID):
    """The id of a shipped class."""

    __slots__ = ()


class PlacementGroupID(BaseID):
    """The id of a placement group."""

    __slots__ = ()
    _SIZE = 18
