"""`LocalBackend`: the verbs of a session in one process.

Each call is a scheduling point, and goes to the native backend of the calling thread's simulated process.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from mray._api.backend import Backend
from mray._api.object_ref import ObjectRef
from mray._backends.lazy_graphs import Graphs
from mray._backends.local import patches
from mray._backends.local.environment import check_environment
from mray._backends.local.local_node import LocalNode
from mray._backends.local.local_process import SimulatedProcess
from mray._backends.local.loops import Loops
from mray._backends.local.run_token import RunToken, here
from mray._backends.native import NativeBackend
from mray._common import clock, process_local, settings
from mray._common import messages as m
from mray._common.bridge import Cancel, nothing
from mray._common.kept import os
from mray._common.log import logger
from mray._ipc.reaper import local_name, remove_local, sweep
from mray._ipc.sessions import parent_of
from mray._observe.observer import own_nodes
from mray._runtime.client import failed_calls
from mray._runtime.session.launching import checked_options
from mray.exceptions import RaySystemError

if TYPE_CHECKING:
    from mray._api.actor_handle import ActorHandle
    from mray._backends.graph_host import Host
    from mray._common.options import SessionOptions
    from mray._inside.client import Client
    from mray._inside.platform import Worker


Verb = TypeVar("Verb", bound=Callable[..., Any])


def _in_place_of(verb: Verb, function: Any) -> Verb:
    """The function with the name and signature of the contract's verb, and not abstract."""
    functools.update_wrapper(function, verb, updated=())
    return function  # type: ignore[no-any-return]


def _holding_token(method: Verb) -> Verb:
    def taken(self: LocalBackend, *args: Any, **kwargs: Any) -> Any:
        run_token = self.run_token
        sim_thread = here.sim_thread
        if sim_thread is not None and run_token.is_held_by(sim_thread):
            return method(self, *args, **kwargs)
        with run_token.held():
            return method(self, *args, **kwargs)

    return _in_place_of(method, taken)


def _of_process(verb: Verb) -> Verb:
    found: Any = property(attrgetter(f"_here.{verb.__name__}"))
    return found  # type: ignore[no-any-return]


def _with_token(verb: Verb, *, pause: bool = False) -> Verb:
    name = verb.__name__

    def asked(self: LocalBackend, *args: Any, **kwargs: Any) -> Any:
        returned = getattr(self._here, name)(*args, **kwargs)
        if pause:
            self.run_token.pause()
        return returned

    return _in_place_of(verb, _holding_token(asked))


def _in_environment(verb: Verb) -> Verb:
    """For calls whose last argument is their options; fields of `runtime_env` that need a process are refused."""
    name = verb.__name__

    def asked(self: LocalBackend, called: Any, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]) -> Any:
        check_environment(options["runtime_env"])
        returned = getattr(self._here, name)(called, args, kwargs, options)
        self.run_token.pause()
        return returned

    return _in_place_of(verb, _holding_token(asked))


def _make_backend(process: SimulatedProcess) -> NativeBackend:
    return NativeBackend(process.client, None, process.worker, Graphs(process.client, process.worker, _make_host))


def _make_host(client: Client, worker: Worker | None) -> Host:
    from mray._backends.local.local_graphs import make_host  # noqa: PLC0415  (slow to import, and many programs have no graph)

    return make_host(client, worker)


class LocalBackend(Backend):
    has_left = _of_process(Backend.has_left)
    wake = _of_process(Backend.wake)
    restore_ref = _of_process(Backend.restore_ref)
    export_ref = _of_process(Backend.export_ref)
    set_tensor_target = _of_process(Backend.set_tensor_target)
    has_made = _of_process(Backend.has_made)
    hold_actor = _of_process(Backend.hold_actor)
    export_handle = _of_process(Backend.export_handle)
    timeline = _of_process(Backend.timeline)
    context = _of_process(Backend.context)
    exit_actor = _of_process(Backend.exit_actor)
    host = _of_process(Backend.host)
    info = _of_process(Backend.info)

    on_out_of_scope = _with_token(Backend.on_out_of_scope)
    future_of = _with_token(Backend.future_of)
    wait_in_loop = _with_token(Backend.wait_in_loop)
    put_tensors = _with_token(Backend.put_tensors)
    wait_tensor_freed = _with_token(Backend.wait_tensor_freed)
    tensor_transport_of = _with_token(Backend.tensor_transport_of)
    cancel = _with_token(Backend.cancel, pause=True)
    kill_actor = _with_token(Backend.kill_actor, pause=True)
    submit_method = _with_token(Backend.submit_method, pause=True)
    actor_state = _with_token(Backend.actor_state)
    get_actor = _with_token(Backend.get_actor)
    create_placement_group = _with_token(Backend.create_placement_group)
    remove_placement_group = _with_token(Backend.remove_placement_group)
    placement_group_ready = _with_token(Backend.placement_group_ready)
    wait_placement_group = _with_token(Backend.wait_placement_group)
    compile_graph = _with_token(Backend.compile_graph)
    restore_graph = _with_token(Backend.restore_graph)
    put = _with_token(Backend.put, pause=True)

    submit_task = _in_environment(Backend.submit_task)
    create_actor = _in_environment(Backend.create_actor)

    def __init__(self, run_token: RunToken, node: LocalNode) -> None:
        self.run_token = run_token
        self.node = node
        self.driver: SimulatedProcess

    @classmethod
    def start(cls, options: SessionOptions) -> LocalBackend:
        """Make the calling thread the driver. ValueError for the address of another session."""
        if options.address not in (None, "local"):
            raise ValueError(
                f"Invalid address format: {options.address}. One process (local_mode=True or MRAY_BACKEND=local) has no address; use the "
                "native engine to join another session."
            )
        chosen = checked_options(options)
        for module in options.preload:
            importlib.import_module(module)
        check_environment(options.runtime_env)
        own_options = options.system_config or {}
        seed = own_options.get("local_seed", settings.LOCAL_SEED.get())
        run_token = RunToken(seed, not own_options.get("local_skip_sleeps", settings.LOCAL_SKIP_SLEEPS.get()))
        parent = parent_of(options.temp_dir)
        sweep(parent)
        directory = os.path.join(parent, local_name(id(run_token)))
        chosen["info"]["session_name"] = os.path.basename(directory)
        failed_calls.clear()
        node = LocalNode(run_token, directory, chosen, _make_backend)
        run_token.explain = node.explain
        own_nodes[directory] = node.answer
        backend = cls(run_token, node)
        driver = backend.driver = SimulatedProcess(node, node.new_process(), m.ROLE_DRIVER, None, os.getpid())
        here.sim_thread, here.process = run_token.driver, driver
        run_token.driver.process = driver
        driver.client.join()
        driver.backend = _make_backend(driver)
        patches.install(run_token, node.by_pid)
        backend._loops = Loops(run_token)
        clock.use(lambda: run_token.clock)
        process_local.use(lambda: here.process)
        backend._hook = sys.excepthook
        sys.excepthook = backend._print_seed
        logger.debug("one process, MRAY_LOCAL_SEED=%d", run_token.seed)
        return backend

    _hook: Callable[..., Any] | None = None
    _loops: Loops

    def _print_seed(self, kind: Any, error: Any, trace: Any) -> None:
        if self._hook is not None:
            self._hook(kind, error, trace)
        if not isinstance(error, KeyboardInterrupt):
            seed = self.run_token.seed
            sys.stderr.write(f"mray ran in one process; MRAY_LOCAL_SEED={seed} runs tasks and actors in the same order again\n")

    def _process(self) -> SimulatedProcess:
        process: SimulatedProcess | None = here.process
        return self.driver if process is None or process.node is not self.node else process

    @property
    def client(self) -> Client:
        return self._process().client

    @property
    def _here(self) -> NativeBackend:
        return self._process().backend  # type: ignore[no-any-return]

    # ------------------------------------------------------------------------------------ session
    @_holding_token
    def shutdown(self) -> None:
        if self.run_token.closed:
            return
        host = self.driver.backend.graphs.made
        if host is not None:
            host.close()
        # Waiting user threads get the error, and leave.
        self.driver.client.fail_everything(RaySystemError("Ray has not been started yet. The session was shut down."))
        self.driver.finish_callbacks()
        self.run_token.close()
        self.driver.client.close()
        if host is not None:
            host.settle()
        patches.uninstall()
        own_nodes.pop(self.node.directory, None)
        remove_local(self.node.directory)
        self._loops.give_back()
        clock.use(None)
        process_local.use(None)
        if sys.excepthook == self._print_seed and self._hook is not None:
            sys.excepthook = self._hook

    def trace(self) -> list[tuple[str, int]]:
        """(number of the decision, name of the chosen thread, number of runnable threads)."""
        return [(name, among) for _number, name, among in self.run_token.trace]

    # ------------------------------------------------------------------------------------ objects
    @_holding_token
    def get(self, refs: Sequence[ObjectRef], timeout: float | None, through_host: bool = False) -> list[Any]:
        if all((entry := ref._entry) is not None and entry.form is not None for ref in refs):
            self.run_token.pause()
        return self._here.get(refs, timeout, through_host)

    @_holding_token
    def wait(self, refs: Sequence[ObjectRef], num_returns: int, timeout: float | None) -> tuple[list[ObjectRef], list[ObjectRef]]:
        self.run_token.pause()
        return self._here.wait(refs, num_returns, timeout)

    @_holding_token
    def then(self, ref: ObjectRef | ActorHandle, callback: Callable[..., None], *, soon: bool = True) -> Cancel:
        process = self._process()
        if isinstance(ref, ObjectRef) and ref._entry.form is not None:
            callback()
            return nothing
        cancel: Cancel = process.backend.then(ref, lambda *error: process.call_soon(partial(callback, *error)), soon=soon)
        return cancel

    def wait_until(self, predicate: Callable[[], bool], timeout: float | None) -> bool:
        # The end of the session may have made the condition true.
        return (self.run_token.closed and predicate()) or self._wait_until(predicate, timeout)

    @_holding_token
    def _wait_until(self, predicate: Callable[[], bool], timeout: float | None) -> bool:
        self.run_token.pause()
        return self._here.wait_until(predicate, timeout)

    def read_along(self) -> None:
        """Do nothing: decisions deliver messages."""

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        process = self._process()
        self.run_token.call_soon(self.run_token.call_later, seconds, lambda: process.call_soon(callback))

    # ------------------------------------------------------------------------------------ actors
    # ------------------------------------------------------------------------------------ listings
    @_holding_token
    def query(self, what: str, *arguments: Any) -> Any:
        self.run_token.pause()
        return self._here.query(what, *arguments)
