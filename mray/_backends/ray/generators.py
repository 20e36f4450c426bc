"""Refs of the items of a remote generator, as Ray stores them, under mray's class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mray._api.object_ref import ObjectRef
from mray._api.ref_generator import ObjectRefGenerator
from mray._backends.ray.errors import translating


class RayObjectRefGenerator(ObjectRefGenerator):
    __slots__ = ("_ray", "_wrap")

    def __init__(self, generator: Any, wrap: Callable[[Any], ObjectRef]) -> None:
        self._ray = generator
        self._wrap = wrap

    def __next__(self) -> ObjectRef:
        with translating:
            return self._wrap(self._ray.__next__())

    async def __anext__(self) -> ObjectRef:
        with translating:
            ref = await self._ray.__anext__()
        return self._wrap(ref)

    def completed(self) -> ObjectRef:
        return self._wrap(self._ray.completed())

    def next_ready(self) -> bool:
        return bool(self._ray.next_ready())

    def is_finished(self) -> bool:
        return bool(self._ray.is_finished())

    def next_ref(self) -> ObjectRef:
        return self._get_next_ref_n(1)[0]

    @property
    def _generator_ref(self) -> ObjectRef:
        return self._wrap(self._ray.completed())

    def _stream_exhausted(self) -> bool:
        return bool(self._ray._stream_exhausted())

    def _get_next_object_id_binary(self) -> bytes:
        found: bytes = self._ray._get_next_object_id_binary()
        return found

    def _get_next_ref_n(self, num_refs: int) -> list[ObjectRef]:
        return [self._wrap(ref) for ref in self._ray._get_next_ref_n(num_refs)]

    def _consume_next_ref_n(self, num_refs: int) -> None:
        self._ray._consume_next_ref_n(num_refs)

    def _next_sync(self, timeout_s: float | None = None) -> ObjectRef:
        with translating:
            return self._wrap(self._ray._next_sync(timeout_s))

    async def _next_async(self, timeout_s: float | None = None) -> ObjectRef:
        with translating:
            ref = await self._ray._next_async(timeout_s)
        return self._wrap(ref)

    def __repr__(self) -> str:
        return f"<ObjectRefGenerator of {self.completed().task_id()}>"
