"""Ray's own modules instead of mray's (`Backend.counterpart`), and queries of Ray's tables (`Backend.query`).

A counterpart takes mray's refs, handles and enumerations and raises mray's errors.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from enum import Enum
from types import ModuleType
from typing import Any

import ray
from ray.experimental import get_local_object_locations, get_object_locations, internal_kv
from ray.util.placement_group import get_placement_group

from mray._api.actor_handle import ActorHandle
from mray._api.object_ref import ObjectRef
from mray._backends.ray.errors import translating
from mray._backends.ray.values import rays_own

#: Modules of mray that Ray replaces; all others are built on the verbs.
_ANSWERED_BY_RAY = frozenset({"util.collective", "util.metrics", "util.serialization", "util.state"})


class Counterpart:
    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        if isinstance(found, type) or not callable(found):
            return found

        @functools.wraps(found)
        def call(*args: Any, **kwargs: Any) -> Any:
            with translating:
                return found(*[self._rays(each) for each in args], **{key: self._rays(each) for key, each in kwargs.items()})

        self.__dict__[name] = call
        return call

    def _rays(self, value: Any) -> Any:
        if isinstance(value, (ActorHandle, ObjectRef)):
            return rays_own(value)
        if isinstance(value, Enum) and type(value).__module__.startswith("mray."):
            return getattr(importlib.import_module(f"{self._module.__name__}.types"), type(value).__name__)[value.name]
        if type(value) in (list, tuple):
            return type(value)([self._rays(each) for each in value])
        return value


@functools.cache
def counterpart(module: str) -> Counterpart | None:
    return Counterpart(importlib.import_module(f"ray.{module}")) if module in _ANSWERED_BY_RAY else None


# ------------------------------------------------------------------------------------------------ tables
def _locations(refs: list[ObjectRef], here: bool = False) -> list[tuple[int | None, bool, list[str]]]:
    given = [rays_own(ref) or ray.ObjectRef(ref.binary()) for ref in refs]
    found = get_local_object_locations(given) if here else get_object_locations(given)
    rows = [found.get(ref) or {} for ref in given]
    return [(row.get("object_size"), bool(row.get("did_spill")), list(row.get("node_ids") or [])) for row in rows]


def _named_placement_group(name: str, _namespace: str | None = None) -> bytes | None:
    try:
        found: bytes = get_placement_group(name).id.binary()
    except ValueError:
        return None
    return found


def _key_values(verb: str, namespace: bytes | None, key: bytes, *rest: Any) -> Any:
    return _KEY_VALUES[verb](key, *rest, namespace=namespace)


def _delete(key: bytes, by_prefix: bool, *, namespace: bytes | None) -> Any:
    return internal_kv._internal_kv_del(key, del_by_prefix=by_prefix, namespace=namespace)


_KEY_VALUES: dict[str, Callable[..., Any]] = {
    "get": internal_kv._internal_kv_get,
    "put": internal_kv._internal_kv_put,
    "delete": _delete,
    "keys": internal_kv._internal_kv_list,
}

TABLES: dict[str, Callable[..., Any]] = {
    "key_values": _key_values,
    "named_placement_group": _named_placement_group,
    "object_locations": _locations,
}
