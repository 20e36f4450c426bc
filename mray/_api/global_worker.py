"""`GlobalWorker`: the calling process, as libraries on top of Ray look at it (``ray._private.worker.global_worker``).

In every process, with and without a session; starts none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mray._api.current import backend_if_started, started_backend
from mray._common.ids import ActorID, JobID, NodeID, PlacementGroupID, TaskID, WorkerID

if TYPE_CHECKING:
    from mray._api.context import RuntimeContext

#: Kinds of processes, as Ray numbers them.
SCRIPT_MODE = 0
WORKER_MODE = 1


class GlobalWorker:
    """The calling process. Attributes of a session raise RaySystemError when there is none."""

    def __init__(self, context: RuntimeContext) -> None:
        self._context = context

    @property
    def mode(self) -> int | None:
        """`SCRIPT_MODE` in a driver, `WORKER_MODE` in a worker, None without a session."""
        backend = backend_if_started()
        return None if backend is None else WORKER_MODE if backend.context().get("mode") == "worker" else SCRIPT_MODE

    @property
    def connected(self) -> bool:
        """Whether there is a session."""
        return backend_if_started() is not None

    def check_connected(self) -> None:
        """RaySystemError when there is no session."""
        started_backend()

    @property
    def current_job_id(self) -> JobID:
        self.check_connected()
        return JobID.from_hex(self._context.get_job_id())

    @property
    def current_node_id(self) -> NodeID:
        self.check_connected()
        return NodeID.from_hex(self._context.get_node_id())

    @property
    def worker_id(self) -> bytes:
        self.check_connected()
        return WorkerID.from_hex(self._context.get_worker_id()).binary()

    @property
    def current_task_id(self) -> TaskID:
        """Nil in a driver."""
        self.check_connected()
        task = self._context.get_task_id() if self.mode == WORKER_MODE else None
        return TaskID.nil() if task is None else TaskID.from_hex(task)

    @property
    def actor_id(self) -> ActorID:
        """Nil outside an actor."""
        self.check_connected()
        actor = self._context.get_actor_id()
        return ActorID.nil() if actor is None else ActorID.from_hex(actor)

    @property
    def placement_group_id(self) -> PlacementGroupID:
        """Nil outside a placement group."""
        self.check_connected()
        group = self._context.get_placement_group_id()
        return PlacementGroupID.nil() if group is None else PlacementGroupID.from_hex(group)

    @property
    def should_capture_child_tasks_in_placement_group(self) -> bool:
        self.check_connected()
        return self._context.should_capture_child_tasks_in_placement_group

    @property
    def namespace(self) -> str:
        self.check_connected()
        return self._context.namespace

    @property
    def runtime_env(self) -> str:
        """As JSON."""
        self.check_connected()
        return self._context.get_runtime_env_string()

    @property
    def node_ip_address(self) -> str:
        return str(started_backend().facts()["node_ip_address"])
