"""`CallContext`: the task, the resources and the placement of a worker, for code that runs in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class Running:
    """A call, or an actor's constructor, from its start until it is answered."""

    __slots__ = ("awaited", "canceled", "final_error", "function_name", "name", "task_id")

    def __init__(self, task_id: bytes, name: str, function_name: str | None) -> None:
        self.task_id = task_id
        self.name = name
        #: Module and qualified name; None until it has been looked up.
        self.function_name = function_name
        self.canceled = False
        #: Arguments whose tensors may still be lost with their holders (`mray._gpu.tensor_transport`).
        self.awaited: Sequence[Any] = ()
        #: Replaces the result or error after `exit_actor`.
        self.final_error: BaseException | None = None


class CallContext:
    """Read by `Backend.context` in any thread of the worker."""

    def __init__(self) -> None:
        self.running: Running | None = None
        self.actor_id: bytes | None = None
        self.actor_name: str | None = None
        self.class_name: str | None = None
        self.restarted = False
        self.resources: dict[str, float] = {}
        self.gpu_ids: list[Any] = []
        #: Ids by kind, besides GPUs.
        self.accelerators: dict[str, list[str]] = {}
        self.runtime_env: dict[str, Any] = {}
        self.max_task_retries = 0
        self.namespace = ""
        #: The placement group, whether children inherit it, its bundles. The same object while the placement does not change.
        self.placement: tuple[bytes, bool, list[dict[str, float]]] | None = None

    @property
    def task_id(self) -> bytes | None:
        running = self.running
        return None if running is None else running.task_id
