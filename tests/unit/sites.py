"""Sites for tests: processes with pretended devices."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from mray._channel.site import Site, SiteGpu

_pids = itertools.count(1000)


def gpu(number: int, reaches: Iterable[int] = (), index: int = 0) -> SiteGpu:
    """GPU number `number` of the machine, which reaches the memory of those others."""
    return SiteGpu(index, f"GPU-{number}", "H1", frozenset(f"GPU-{other}" for other in reaches))


def actor(name: str, *gpus: int, reaches: Iterable[int] = (), nccl: int = 22705, shares: bool = False, owns: bool = True) -> Site:
    """An actor that sees these GPUs, all of which reach the memory of `reaches`."""
    seen = tuple(gpu(number, reaches, index) for index, number in enumerate(gpus))
    return Site("cuda" if gpus else "", seen, nccl, shares, next(_pids), name, owns=owns and bool(gpus))


def driver(*gpus: int, reaches: Iterable[int] = ()) -> Site:
    """The driver, seeing these GPUs."""
    seen = tuple(gpu(number, reaches, index) for index, number in enumerate(gpus))
    return Site("cuda" if gpus else "", seen, 22705, False, next(_pids), "the driver", is_driver=True)
