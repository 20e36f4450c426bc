"""Locations and sizes of objects."""

from __future__ import annotations

from typing import Any

from mray._api.current import backend_if_started
from mray._api.object_ref import ObjectRef

__all__ = ["get_local_object_locations", "get_object_locations"]


def get_object_locations(obj_refs: list[ObjectRef], timeout_ms: int = -1) -> dict[ObjectRef, dict[str, Any]]:
    """For each ref ``node_ids`` (the node, in hex digits, when the value is in shared memory, on disk or inline with its owner),
    ``object_size`` in bytes (``None`` while it is pending) and ``did_spill``, whether it is on disk. Does not wait: `timeout_ms` is
    ignored. RuntimeError before `init`.
    """
    return _locations(obj_refs, here=False)


def _locations(refs: list[ObjectRef], here: bool) -> dict[ObjectRef, dict[str, Any]]:
    backend = backend_if_started()
    if backend is None:
        raise RuntimeError("Ray hasn't been initialized.")
    for ref in refs:
        if not isinstance(ref, ObjectRef):
            raise TypeError(f"Locations are those of ObjectRefs, not of {type(ref).__name__}: {ref!r}.")
    node_id = backend.info()["node_id"]
    node = node_id.hex() if isinstance(node_id, bytes) else str(node_id)
    # A cluster's engine also returns the nodes.
    found: list[tuple[Any, ...]] = backend.query("object_locations", refs, here)
    return {
        ref: {"node_ids": nodes[0] if nodes else [] if size is None else [node], "object_size": size, "did_spill": spilled}
        for ref, (size, spilled, *nodes) in zip(refs, found, strict=True)
    }


def get_local_object_locations(obj_refs: list[ObjectRef]) -> dict[ObjectRef, dict[str, Any]]:
    """As `get_object_locations`, from this process's knowledge, which is the same on one host."""
    return _locations(obj_refs, here=True)
