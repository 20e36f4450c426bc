"""`Context`: the task, the resources and the placement of a worker, for code that runs in it."""

from __future__ import annotations

from typing import Any


class Context:
    """The running task and its resources; read by `Backend.context` in any thread of the worker."""

    def __init__(self) -> None:
        self.task_id: bytes | None = None
        self.task_name: str | None = None
        #: The function or method that runs: module and qualified name.
        self.function_name: str | None = None
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
