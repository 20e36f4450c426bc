"""`LocalWorker`: the worker of one simulated process, which replaces the parts of the native one that touch the operating system's process.

The native worker and executor run unchanged otherwise: errors, retries, streams and cancelling are theirs.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from mray._backends.local.local_groups import LocalConcurrencyGroups
from mray._backends.local.run_token import ThreadEnded, here
from mray._common import messages as m
from mray._common.invocations import short_name
from mray._ipc.connection import Connection
from mray._ipc.process import Title
from mray._runtime.client.cancelling import Interrupts
from mray._runtime.worker.devices import Devices
from mray._runtime.worker.executor import Executor
from mray._runtime.worker.exits import TERMINATED, Terminated
from mray._runtime.worker.packer import Packer
from mray._runtime.worker.running import RunningCall
from mray._runtime.worker.worker import LAST_TOLD, Worker

if TYPE_CHECKING:
    from mray._backends.local.local_client import LocalClient
    from mray._backends.local.local_process import Process


class ProcessExit(ThreadEnded):
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


class LocalPacker(Packer):
    """Pickles results and errors."""

    def wrapped(self, error: BaseException, name: str) -> Any:
        if isinstance(error, ThreadEnded):
            raise error
        return super().wrapped(error, name)


class LocalExecutor(Executor):
    """Runs calls and replies to them."""

    title_class = _NoTitle
    packer_class = LocalPacker

    def _show(self, name: str) -> None:
        self.shown = name

    def _failed(self, running: RunningCall, error: BaseException, may_repeat: bool = True) -> None:
        if isinstance(error, ThreadEnded):
            raise error
        super()._failed(running, error, may_repeat)

    def shut_down_instance(self) -> None:
        hook = getattr(self.actor.instance, "__ray_shutdown__", None)
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
        self._devices = Devices(self._assign)
        self.interrupts.worker = self  # type: ignore[attr-defined]

    # ------------------------------------------------------------------------------------ from outside
    def interrupt(self) -> None:
        """Raise KeyboardInterrupt in the running call, at its next scheduling point."""
        for sim_thread in self.simulated.sim_threads[:1]:
            self.simulated.client.reactor.run_token.throw(sim_thread, KeyboardInterrupt())

    def terminate(self) -> None:
        """Do what SIGTERM does: the process ends in order."""
        if self.groups.terminate():
            return
        self.inbox.appendleft((self.client.node, m.EXIT, TERMINATED))
        self.client.reactor.wake()
        if here.process is self.simulated:
            raise Terminated
        for sim_thread in self.simulated.sim_threads[:1]:
            self.simulated.client.reactor.run_token.throw(sim_thread, Terminated())

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

    def _start_actor(self, actor_id: bytes, spec: dict[str, Any], incarnation: int) -> None:
        own = short_name(spec["class_name"])
        self.simulated.sim_threads[0].name = f"{own} {spec['number']}" if "number" in spec else own
        super()._start_actor(actor_id, spec, incarnation)

    def _set_up(self, has: Mapping[str, Any]) -> None:
        """As `Worker`, but the CPUs and the native threads are the whole program's."""
        self.context.accelerators = self._devices.show(self.context.gpu_ids, has.get("accelerators") or {})

    def _assign(self, name: str, value: str | None) -> None:
        env_vars = self.simulated.env_vars
        assert env_vars is not None
        env_vars.restore(name, value)

    def _leave(self, kind: str, text: str) -> NoReturn:
        """End in order: calls that run, user hooks, then the process."""
        client = self.client
        self.groups.finish(kind)
        self._leaving = True
        self._give_back_all()
        client.leases.give_back_idle()
        client.node.send((m.EXITING, kind, text, self.name, [*self.main_thread.recent][-LAST_TOLD:]))
        if kind != m.CAUSE_INIT:
            self._survive(self.executor.shut_down_instance)
        self.executor.let_go()
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
        except ThreadEnded:
            raise
        except BaseException:
            sys.excepthook(*sys.exc_info())

    def node_lost(self) -> BaseException | None:
        return None
