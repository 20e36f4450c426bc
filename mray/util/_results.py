"""Iterating over results as they arrive, and attributes of actors and the node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from mray._api.current import current_backend
from mray._api.object_ref import ObjectRef
from mray._api.verbs import get, is_initialized, wait
from mray._common import settings
from mray._inside.addresses import node_address


def as_completed(refs: Sequence[ObjectRef], *, chunk_size: int = 10, yield_obj_refs: bool = False, **wait_options: Any) -> Iterator[Any]:
    """Yield the values of refs in the order in which they arrive.

    Waits for `chunk_size` of them at a time. With `yield_obj_refs` yields ready refs. Further arguments are those of `mray.wait`.
    """
    _check_chunks(chunk_size, wait_options)
    left = list(refs)
    while left:
        ready, left = wait(left, num_returns=min(chunk_size, len(left)), **wait_options)
        yield from ready if yield_obj_refs else get(ready)


def map_unordered(
    fn: Any,
    items: Iterable[Any],
    *,
    backpressure_size: int | None = 100,
    chunk_size: int = 10,
    yield_obj_refs: bool = False,
    **wait_options: Any,
) -> Iterator[Any]:
    """Call a remote function with each item and yield the values in the order in which they arrive.

    At most `backpressure_size` calls are in flight (``None``: any number). The other arguments are those of `as_completed`.
    """
    if backpressure_size is None:
        backpressure_size = 1 << 60
    elif backpressure_size <= 0:
        raise ValueError("backpressure_size must be positive.")
    _check_chunks(chunk_size, wait_options)
    flying: list[ObjectRef] = []
    for item in items:
        flying.append(fn.remote(item))
        if len(flying) >= backpressure_size:
            ready, flying = wait(flying, num_returns=min(chunk_size, len(flying)), **wait_options)
            yield from ready if yield_obj_refs else get(ready)
    yield from as_completed(flying, chunk_size=chunk_size, yield_obj_refs=yield_obj_refs, **wait_options)


def _check_chunks(chunk_size: int, wait_options: dict[str, Any]) -> None:
    if chunk_size < 1:
        raise ValueError("`chunk_size` must be >= 1")
    if "num_returns" in wait_options:
        raise ValueError("Use the `chunk_size` argument instead of `num_returns`.")


def list_named_actors(all_namespaces: bool = False) -> list[Any]:
    """Names of the living named actors of this namespace; with `all_namespaces`, dicts with ``name`` and ``namespace``."""
    backend = current_backend()
    named: list[dict[str, str]] = backend.query("named_actors", all_namespaces, backend.info()["namespace"])
    if all_namespaces:
        return [{"name": actor["name"], "namespace": actor["namespace"]} for actor in named]
    return [actor["name"] for actor in named]


def get_node_instance_id() -> str:
    """The cloud's id of this machine: ``RAY_CLOUD_INSTANCE_ID``, or "" without one."""
    return settings.CLOUD_INSTANCE_ID.get()


def get_node_ip_address(address: str | None = None) -> str:
    """This host's address on its default route, or the one that the session was started with. `address` is ignored."""
    return str(current_backend().info()["node_ip_address"]) if is_initialized() else node_address()
