"""Limits of Ray's client compared with a driver within the cluster, and their errors.

In a driver at an address ``ray://...``: its pickles are of its own kind, and the cluster makes sense of them only where the client itself
pickled. Code travels as bytes; a ref or a handle in a closure would arrive as one that belongs to nobody.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import ray.util.client

_thread = threading.local()


def client_connected() -> bool:
    """Whether this process talks to the cluster through Ray's client, which pickles in ways of its own."""
    return bool(ray.util.client.ray.is_connected())


@contextmanager
def into_bytes() -> Iterator[None]:
    """Around the pickling of code."""
    _thread.pickles_code = True
    try:
        yield
    finally:
        _thread.pickles_code = False


def refuse_closures(what: object) -> None:
    """ValueError for a ref or a handle that this thread pickles with code, through the client."""
    if getattr(_thread, "pickles_code", False) and client_connected():
        raise ValueError(
            f"{what!r} is in a closure, and Ray's client (an address ray://...) cannot send those: give it as an argument, or take "
            "ray:HOST:PORT from a machine of the cluster."
        )


def refuse_stream(num_returns: object) -> None:
    """NotImplementedError where generators are asked for: Ray's client would fail later and say less."""
    if isinstance(num_returns, str) and client_connected():
        raise NotImplementedError(
            "Ray's client (an address ray://...) has no generators: take ray:HOST:PORT from a machine of the cluster, or return a list."
        )
