"""`CallContext`: the task, the resources and the placement of a worker, for code that runs in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class Running:
    """A call, or an actor's constructor, from its begin until it is answered."""

    __slots__ = ("awaited", "canceled", "final_error", "function_name", "name", "task_id")

    def __init__(self, task_id: bytes, name: str, function_name: str | None) -> None:
        self.task_id = task_id
        #: The name that the caller has given it, or that of its function.
        self.name = name
        #: The function or method: module and qualified name. None as long as the function has not been looked up.
        self.function_name = function_name
        self.canceled = False
        #: Arguments whose tensors streams wait for, that may be lost with their holders (`mray._gpu.tensor_transport`).
        self.awaited: Sequence[Any] = ()
        #: The exception that replaces the result or the error of the user's code, which has called `exit_actor`.
        self.final_error: BaseException | None = None


class CallContext:
    """The running task and its resources; read by `Backend.context` in any thread of the worker."""

    def __init__(self) -> None:
        #: The call on the main thread.
        self.running: Running | None = None
        self.actor_id: bytes | None = None
        self.actor_name: str | None = None
        self.class_name: str | None = None
        self.restarted = False
        self.resources: dict[str, float] = {}
        self.gpu_ids: list[Any] = []
        #: Other accelerators: ids by kind.
        self.accelerators: dict[str, list[str]] = {}
        self.runtime_env: dict[str, Any] = {}
        self.max_task_retries = 0
        self.namespace = ""
        #: Its placement group, whether its children follow it there, the group's bundles. The same object as long as it is the same place.
        self.placement: tuple[bytes, bool, list[dict[str, float]]] | None = None

    @property
    def task_id(self) -> bytes | None:
        """The id of the running call."""
        running = self.running
        return None if running is None else running.task_id
