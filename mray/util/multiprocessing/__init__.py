"""`multiprocessing.Pool` on actors."""

from __future__ import annotations

from multiprocessing import JoinableQueue, TimeoutError

from mray.util.multiprocessing.pool import Pool

__all__ = ["JoinableQueue", "Pool", "TimeoutError"]
