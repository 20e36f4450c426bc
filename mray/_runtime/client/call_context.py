"""`CallContext`: the task, the resources and the placement of a worker, for code that runs in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class Running:
    """A call, or an actor's constructor, from its start until it is answered."""

    __slots__ = ("awaited", "canceled", "final_error", "function_name", "name", "task_id")

    def __init__(self, task_id: bytes, name: str, function_name: str | None) -> None:
        self.task_id = task_id
        #: The caller's name for it, or the function's name.
        self.name = name
        #: The module and qualified name of the function or method; None until it has been looked up.
        self.function_name = function_name
        self.canceled = False
        #: Arguments with tensors that streams still wait for, which may be lost with their holders (`mray._gpu.tensor_transport`).
        self.awaited: Sequence[Any] = ()
        #: The exception that replaces the result or error of user code that has called `exit_actor`.
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
        #: The placement group, whether children inherit it, the group's bundles. The same object as long as the placement does not change.
        self.placement: tuple[bytes, bool, list[dict[str, float]]] | None = None

    @property
    def task_id(self) -> bytes | None:
        running = self.running
        return None if running is None else running.task_id
