"""Backends, reduce operations, and the options that a backend's methods take."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum

__all__ = [
    "AllGatherOptions",
    "AllReduceOptions",
    "Backend",
    "BarrierOptions",
    "BroadcastOptions",
    "RecvOptions",
    "ReduceOp",
    "ReduceOptions",
    "ReduceScatterOptions",
    "SendOptions",
    "cupy_available",
    "torch_available",
    "unset_timeout_ms",
]


def cupy_available() -> bool:
    """Whether cupy is installed."""
    return importlib.util.find_spec("cupy") is not None


def torch_available() -> bool:
    """Whether torch is installed."""
    return importlib.util.find_spec("torch") is not None


class Backend:
    """Names of backends. ``Backend(name)`` returns the canonical name; ValueError for an unknown one."""

    NCCL = "NCCL"
    #: Shared memory.
    GLOO = "GLOO"
    UNRECOGNIZED = "unrecognized"

    def __new__(cls, name: str) -> str:  # type: ignore[misc]
        upper = "GLOO" if name.upper() == "TORCH_GLOO" else name.upper()
        found: str = getattr(cls, upper, cls.UNRECOGNIZED)
        if found == cls.UNRECOGNIZED:
            raise ValueError(f"Unrecognized backend: '{name}'. Only NCCL and GLOO are supported")
        return found


class ReduceOp(Enum):
    """How a collective combines the values of its members."""

    SUM = 0
    PRODUCT = 1
    MIN = 2
    MAX = 3


#: No time limit.
unset_timeout_ms = timedelta(milliseconds=-1)


@dataclass
class AllReduceOptions:
    """Options of `allreduce`."""

    reduceOp: ReduceOp = ReduceOp.SUM  # noqa: N815  (Ray's name)
    timeout_ms: timedelta = unset_timeout_ms


@dataclass
class BarrierOptions:
    """Options of `barrier`."""

    timeout_ms: timedelta = unset_timeout_ms


@dataclass
class ReduceOptions:
    """Options of `reduce`."""

    reduceOp: ReduceOp = ReduceOp.SUM  # noqa: N815  (Ray's name)
    root_rank: int = 0
    root_tensor: int = 0
    timeout_ms: timedelta = unset_timeout_ms


@dataclass
class AllGatherOptions:
    """Options of `allgather`."""

    timeout_ms: timedelta = unset_timeout_ms


@dataclass
class BroadcastOptions:
    """Options of `broadcast`."""

    root_rank: int = 0
    root_tensor: int = 0
    timeout_ms: timedelta = unset_timeout_ms


@dataclass
class ReduceScatterOptions:
    """Options of `reducescatter`."""

    reduceOp: ReduceOp = ReduceOp.SUM  # noqa: N815  (Ray's name)
    timeout_ms: timedelta = unset_timeout_ms


@dataclass
class SendOptions:
    """Options of `send`."""

    dst_rank: int = 0
    dst_gpu_index: int = 0
    n_elements: int = 0
    timeout_ms: timedelta = unset_timeout_ms


@dataclass
class RecvOptions:
    """Options of `recv`."""

    src_rank: int = 0
    src_gpu_index: int = 0
    n_elements: int = 0
    timeout_ms: timedelta = unset_timeout_ms
