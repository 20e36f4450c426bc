"""`get_runtime_context`: the task, actor and process of the calling code.

The backend answers each call. `GlobalWorker` offers the same as libraries on top of Ray read it
(``ray._private.worker.global_worker``); it starts no session.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from mray._api.actor import make_handle
from mray._api.actor_handle import ActorHandle
from mray._api.blueprint import ActorBlueprint
from mray._api.current import backend_if_started, current_backend, started_backend
from mray._api.init import as_hex, warn_deprecated
from mray._common import settings
from mray._common.accelerator_kinds import KINDS
from mray._common.ids import ActorID, JobID, NodeID, PlacementGroupID, TaskID, WorkerID
from mray._common.log import logger

#: Kinds of processes, as Ray numbers them.
SCRIPT_MODE = 0
WORKER_MODE = 1


class RuntimeContext:
    """The job, process, task and actor of the calling code. Ids are in hex digits, or None."""

    def get(self) -> dict[str, Any]:
        """Several ids together, as id objects. Deprecated."""
        warn_deprecated("get_xxx_id() methods to get relevant ids")
        info: dict[str, Any] = {
            "job_id": JobID.from_hex(self.get_job_id()),
            "node_id": NodeID.from_hex(self.get_node_id()),
            "namespace": self.namespace,
        }
        task, actor = self.get_task_id(), self.get_actor_id()
        if task is not None:
            info["task_id"] = TaskID.from_hex(task)
        if actor is not None:
            info["actor_id"] = ActorID.from_hex(actor)
        return info

    # ------------------------------------------------------------------------------------ where
    def get_job_id(self) -> str:
        return str(as_hex(current_backend().info()["job_id"]))

    def get_node_id(self) -> str:
        return str(as_hex(current_backend().info()["node_id"]))

    def get_worker_id(self) -> str:
        """The process, driver or worker."""
        return str(as_hex(self._here("worker_id")))

    def get_session_name(self) -> str:
        return str(current_backend().info()["session_name"])

    def get_temp_dir(self) -> str:
        """The parent of the session's directory."""
        return str(current_backend().info()["session_dir"]).rpartition("/")[0]

    def get_node_labels(self) -> dict[str, str]:
        info = current_backend().info()
        return {"ray.io/node-id": str(as_hex(info["node_id"])), **(info.get("labels") or {})}

    @property
    def namespace(self) -> str:
        """The default namespace of actors' names."""
        return str(current_backend().info()["namespace"])

    @property
    def gcs_address(self) -> str:
        return str(current_backend().info().get("address") or "local")

    # -------------------------------------------------------------------------------- task and actor
    def get_task_id(self) -> str | None:
        """The running task, also that of an actor's method; None in the driver."""
        return self._of_worker("task_id")

    def get_task_name(self) -> str | None:
        return self._of_worker("task_name")

    def get_task_function_name(self) -> str | None:
        """The function's qualified name, with its module."""
        return self._of_worker("function_name")

    def get_actor_id(self) -> str | None:
        """The actor this is called in."""
        value = as_hex(self._here("actor_id"))
        return None if value is None else str(value)

    def get_actor_name(self) -> str | None:
        """The actor's name, "" for none."""
        return self._of_worker("actor_name")

    @property
    def current_actor(self) -> ActorHandle:
        """A handle of the actor this is called in, which does not keep the actor alive. Raises RuntimeError outside an actor."""
        if self._here("actor_id") is None:
            raise RuntimeError("This method is only available in an actor.")
        context = current_backend().context()
        return _handle_of_own_actor(context["actor_class"], context["actor_id"])

    @property
    def was_current_actor_reconstructed(self) -> bool:
        """Whether the actor has been restarted. Deprecated by Ray."""
        warn_deprecated("state that __init__ sets")
        self._require_worker()
        if self._here("actor_id") is None:
            raise AssertionError("This method should't be called inside Ray tasks.")
        return bool(self._here("restarted"))

    def is_canceled(self) -> bool:
        """Whether `cancel` was called for the task this is called in. Raises RuntimeError in the driver."""
        if self._mode() != "worker":
            raise RuntimeError(_only_in_worker(self._mode()))
        if self._here("is_async"):
            raise RuntimeError("This method is not supported in an async actor.")
        return bool(self._here("canceled"))

    def get_assigned_resources(self) -> dict[str, float]:
        """Resources of the task or actor."""
        self._require_worker()
        return {name: float(amount) for name, amount in (self._here("resources") or {}).items()}

    def get_resource_ids(self) -> dict[str, list[str]]:
        """As `get_accelerator_ids`. Deprecated."""
        warn_deprecated("get_accelerator_ids()")
        return self.get_accelerator_ids()

    def get_accelerator_ids(self) -> dict[str, list[str]]:
        """Each kind of accelerator -> ids, as text."""
        others = {kind: list(ids) for kind, ids in (self._here("accelerators") or {}).items()}
        return {"GPU": [str(gpu) for gpu in self._here("gpu_ids") or ()], **{kind: [] for kind in KINDS}, **others}

    def get_placement_group_id(self) -> str | None:
        """The placement group that the task or actor runs in, or None."""
        value = as_hex(self._here("placement_group_id"))
        return None if value is None else str(value)

    @property
    def should_capture_child_tasks_in_placement_group(self) -> bool:
        """Whether tasks and actors that are started here go into the same placement group."""
        return bool(self._here("captures_children"))

    @property
    def runtime_env(self) -> dict[str, Any]:
        """The environment of the task, actor or job, merged."""
        return dict(self._here("runtime_env") or {})

    def get_runtime_env_string(self) -> str:
        """The same as JSON."""
        import json  # noqa: PLC0415

        return json.dumps(self.runtime_env, sort_keys=True, default=str)

    @property
    def worker(self) -> GlobalWorker:
        """The calling process, as libraries on top of Ray read it."""
        return GlobalWorker()

    # ---------------------------------------------------------------------------------- deprecated
    @property
    def job_id(self) -> JobID:
        warn_deprecated("get_job_id()")
        return JobID.from_hex(self.get_job_id())

    @property
    def node_id(self) -> NodeID:
        warn_deprecated("get_node_id()")
        return NodeID.from_hex(self.get_node_id())

    @property
    def worker_id(self) -> WorkerID:
        warn_deprecated("get_worker_id()")
        return WorkerID.from_hex(self.get_worker_id())

    @property
    def task_id(self) -> TaskID | None:
        warn_deprecated("get_task_id()")
        self._require_worker()
        value = self.get_task_id()
        return None if value is None else TaskID.from_hex(value)

    @property
    def actor_id(self) -> ActorID | None:
        warn_deprecated("get_actor_id()")
        self._require_worker()
        value = self.get_actor_id()
        return None if value is None else ActorID.from_hex(value)

    @property
    def current_placement_group_id(self) -> PlacementGroupID:
        warn_deprecated("get_placement_group_id()")
        value = self.get_placement_group_id()
        return PlacementGroupID.nil() if value is None else PlacementGroupID.from_hex(value)

    # ----------------------------------------------------------------------------------- plumbing
    @staticmethod
    def _here(name: str) -> Any:
        return current_backend().context().get(name)

    @classmethod
    def _mode(cls) -> str:
        return str(cls._here("mode"))

    def _require_worker(self) -> None:
        if self._mode() != "worker":
            raise AssertionError(_only_in_worker(self._mode()))

    def _of_worker(self, name: str) -> str | None:
        if self._mode() != "worker":
            logger.debug(_only_in_worker(self._mode()))
            return None
        value = as_hex(self._here(name))
        return None if value is None else str(value)


def _only_in_worker(mode: str) -> str:
    return f"This method is only available when the process is a worker. Current mode: {0 if mode == 'driver' else mode}"


@lru_cache(maxsize=1)
def _handle_of_own_actor(user_class: type, actor_id: bytes) -> ActorHandle:
    return make_handle(ActorBlueprint.of(user_class), actor_id, None, carried=current_backend().carried_by_own_handle())


class GlobalWorker:
    """The calling process. Attributes of a session raise RaySystemError without one."""

    @property
    def mode(self) -> int | None:
        """`SCRIPT_MODE` in a driver, `WORKER_MODE` in a worker, None without a session."""
        backend = backend_if_started()
        return None if backend is None else WORKER_MODE if backend.context().get("mode") == "worker" else SCRIPT_MODE

    @property
    def connected(self) -> bool:
        return backend_if_started() is not None

    def check_connected(self) -> None:
        started_backend()

    @property
    def _context(self) -> RuntimeContext:
        self.check_connected()
        return runtime_context

    @property
    def current_job_id(self) -> JobID:
        return JobID.from_hex(self._context.get_job_id())

    @property
    def current_node_id(self) -> NodeID:
        return NodeID.from_hex(self._context.get_node_id())

    @property
    def worker_id(self) -> bytes:
        return WorkerID.from_hex(self._context.get_worker_id()).binary()

    @property
    def current_task_id(self) -> TaskID:
        context = self._context
        task = context.get_task_id() if self.mode == WORKER_MODE else None
        return TaskID.nil() if task is None else TaskID.from_hex(task)

    @property
    def actor_id(self) -> ActorID:
        actor = self._context.get_actor_id()
        return ActorID.nil() if actor is None else ActorID.from_hex(actor)

    @property
    def placement_group_id(self) -> PlacementGroupID:
        group = self._context.get_placement_group_id()
        return PlacementGroupID.nil() if group is None else PlacementGroupID.from_hex(group)

    @property
    def should_capture_child_tasks_in_placement_group(self) -> bool:
        return self._context.should_capture_child_tasks_in_placement_group

    @property
    def namespace(self) -> str:
        return self._context.namespace

    @property
    def runtime_env(self) -> str:
        return self._context.get_runtime_env_string()

    @property
    def node_ip_address(self) -> str:
        return str(started_backend().info()["node_ip_address"])


runtime_context = RuntimeContext()
global_worker = runtime_context.worker


def get_runtime_context() -> RuntimeContext:
    """The context of the calling code. Starts a session if there is none and that is allowed."""
    if settings.ENABLE_AUTO_CONNECT.get():
        current_backend()
    return runtime_context
