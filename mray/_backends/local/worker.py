"""`LocalWorker`: the worker of one simulated process, which replaces the parts of the native one that touch the operating system's process.

The native worker and executor run unchanged otherwise: errors, retries, streams and cancelling are theirs.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from mray._backends.local.concurrency_groups import LocalConcurrencyGroups
from mray._backends.local.run_token import Ended
from mray._common import messages as m
from mray._common import settings
from mray._common.accelerators import KINDS, variables_of, visible
from mray._ipc.connection import Connection
from mray._ipc.process import Title
from mray._runtime.client.cancelling import Interrupts
from mray._runtime.worker.executor import Executor
from mray._runtime.worker.exits import exit_status
from mray._runtime.worker.running import RunningCall
from mray._runtime.worker.worker import LAST_TOLD, Worker

if TYPE_CHECKING:
    from mray._backends.local.client import LocalClient
    from mray._backends.local.process import Process


class ProcessExit(Ended):
    """The end of a simulated process, with the status that a real one would have had."""

    def __init__(self, status: int) -> None:
        super().__init__()
        self.status = status


class _NoTitle(Title):
    """`ps` shows the driver's command, untouched."""

    def __init__(self) -> None:
        """Nothing is taken."""

    def set(self, text: str) -> None:
        """Nothing to show."""


class LocalInterrupts(Interrupts):
    """Cancels the call that runs on a worker's simulated thread."""

    worker: LocalWorker

    def cancel(self, task_id: bytes, force: bool, recursive: bool) -> None:
        self.active = True
        self._named[task_id] = recursive
        if self._context.task_id != task_id:
            return
        if force:
            self._client.node.send((m.EXITING, m.CAUSE_CRASH, "its task was cancelled with force=True"))
            if recursive:
                self._cancelling.cancel_children(task_id)
            self.worker.end(1)
            return
        self.worker.interrupt()
        if recursive:
            self._cancelling.cancel_children(task_id)


class LocalExecutor(Executor):
    """Runs calls and replies to them."""

    title_class = _NoTitle
    shares_messages = True

    def _show(self, name: str) -> None:
        self.shown = name

    def _failed(self, running: RunningCall, error: BaseException, may_repeat: bool = True) -> None:
        if isinstance(error, Ended):
            raise error
        if isinstance(error, SystemExit) and self.instance is None:
            self.client.node.send((m.EXITING, m.CAUSE_CRASH, f"the task {running.name} raised {error!r}"))
            raise ProcessExit(exit_status(error))
        super()._failed(running, error, may_repeat)

    def wrapped(self, error: BaseException, name: str) -> Any:
        if isinstance(error, Ended):
            raise error
        return super().wrapped(error, name)

    def shut_down_instance(self) -> None:
        hook = getattr(self.instance, "__ray_shutdown__", None)
        if hook is not None:
            hook()


class LocalWorker(Worker):
    """A worker's state and main loop."""

    simulated: Process
    groups: LocalConcurrencyGroups

    interrupts_class = LocalInterrupts
    executor_class = LocalExecutor
    groups_class = LocalConcurrencyGroups

    def __init__(self, client: LocalClient) -> None:
        super().__init__(client)
        #: Variables of accelerators as they were before one of them was set here.
        self._devices_before: dict[str, str | None] = {}
        self.interrupts.worker = self  # type: ignore[attr-defined]

    # ------------------------------------------------------------------------------------ from outside
    def interrupt(self) -> None:
        """Raise KeyboardInterrupt in the running call, at its next scheduling point."""
        for sim_thread in self.simulated.sim_threads[:1]:
            self.simulated.client.reactor.run_token.throw(sim_thread, KeyboardInterrupt())

    def end(self, status: int) -> None:
        """Kill the process now."""
        self.simulated.end(status)

    def exit_here(self, status: int) -> None:
        """End the process from the user code on the calling simulated thread. Does not return."""
        self.simulated.end(status)
        raise ProcessExit(status)

    def doing(self) -> str:
        """A description of the running calls; "" when there is none."""
        if self.groups.running:
            return ", ".join(call.name for call in self.groups.running.values())
        running = vars(self.context)["running"]  # its attributes answer for the calling simulated thread
        return "" if running is None else str(running.name or self.executor.shown)

    # ------------------------------------------------------------------------------------ its simulated thread
    def _serve(self, connection: Connection, code: int, fields: Any) -> str | None:
        for sim_thread in self.simulated.sim_threads[:1]:
            if not sim_thread.final:
                sim_thread.urgent = None  # it was meant for a call that is over
        return super()._serve(connection, code, fields)

    def _lease(self, _lease_id: int, resources: dict[str, float], gpus: list[Any], options: dict[str, Any] | None) -> None:
        context = self.context
        context.resources = resources
        context.gpu_ids = gpus
        context.runtime_env = (options or {}).get("runtime_env") or {}
        placement = (options or {}).get("placement")
        if placement != context.placement:
            context.placement = placement
        self._lease_cpus = bool(resources.get("CPU"))
        self._set_device_variables((options or {}).get("accelerators") or {})

    def _start_actor(self, actor_id: bytes, spec: dict[str, Any], incarnation: int) -> None:
        context = self.context
        context.gpu_ids = list(spec.get("gpu_ids") or ())
        context.resources = dict(spec.get("resources") or {})
        context.runtime_env = spec.get("runtime_env") or {}
        context.placement = spec.get("current_group")
        self.simulated.sim_threads[0].name = f"{spec['class_name']} {spec['number']}" if "number" in spec else spec["class_name"]
        self._set_device_variables(spec.get("accelerators") or {})
        failure = self.executor.become(actor_id, spec, incarnation)
        node = self.client.node
        if failure is None:
            if self.executor.end is None:
                node.send((m.ACTOR_READY, actor_id))
        else:
            node.send((m.ACTOR_FAILED, actor_id, failure))
            self.executor.end = (m.CAUSE_INIT, "its constructor raised")

    def _set_device_variables(self, accelerators: dict[str, list[int]]) -> None:
        """Set the variables that follow from the devices of the task or actor."""
        env_vars = self.simulated.env_vars
        assert env_vars is not None
        gpus = self.context.gpu_ids
        hides = settings.ACCEL_ENV_VAR_OVERRIDE_ON_ZERO.get()
        if (gpus or hides) and not settings.NOSET_CUDA_VISIBLE_DEVICES.get():
            env_vars.set("CUDA_VISIBLE_DEVICES", ",".join(str(gpu) for gpu in gpus))
        before, self._devices_before = self._devices_before, {}
        for name, value in before.items():
            env_vars.restore(name, value)
        shown = {kind: visible(kind, indices, os.environ.get(KINDS[kind].variable)) for kind, indices in accelerators.items()}
        self.context.accelerators = shown
        for kind in KINDS if hides else shown:
            for name, value in variables_of(kind, shown.get(kind, ())).items():
                self._devices_before[name] = os.environ.get(name)
                env_vars.set(name, value)

    def _leave(self, kind: str, text: str) -> NoReturn:
        """End in order: calls that run, user hooks, then the process."""
        client = self.client
        self.groups.finish(kind)
        self._leaving = True
        self._give_back_all()
        client.node.send((m.EXITING, kind, text, self.name, [*self.recent][-LAST_TOLD:]))
        if kind != m.CAUSE_INIT:
            self._survive(self.executor.shut_down_instance)
        hooks = self.simulated.at_exit
        while hooks:
            function, args, kwargs = hooks.pop()
            self._survive(functools.partial(function, *args, **kwargs))
        if kind != m.CAUSE_CRASH:
            self._finish_own_calls()
        raise ProcessExit(self._status(kind))

    @staticmethod
    def _survive(hook: Callable[[], object]) -> None:
        try:
            hook()
        except Ended:
            raise
        except BaseException:
            sys.excepthook(*sys.exc_info())

    def _node_lost(self) -> BaseException | None:
        return None
