"""A function that sleeps, dispatches, runs the user's code or hands a value over has the mark of it, or stands here with a reason."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from mray._common.whose_code import OWN, kind_of_file
from tests.house.interrupt_marks import DISPATCHES, PRECEDES, SLEEPS, UNDONE, USERS, Function, functions_of, unmarked
from tests.house.source import modules

#: Engines of their own, without handlers that wait.
_APART = ("mray/testing/", "mray/_backends/local/", "mray/_backends/ray/")

_THREAD = "in a thread of mray's own"
_GROUP = "in a thread of a concurrency group"
_NODE = "in the node or the zygote, where no handler of the user's is"
_TEMPLATE = "in the template, where no handler of the user's is"
_BUILDER = "in the builder of an environment, where no handler of the user's is"
_BRIEF = "returns immediately"
_WHOLE = "goes on until the thing is whole; it has a time limit"
_PYTHON = "a function of Python's own language, which has a frame"
_SENT = "calls mray, with what the user gives"

#: Mark -> function without it -> reason.
EXEMPT = {
    SLEEPS: {
        "_common.slow:told_when_slow": _BRIEF,
        "_common.slow:told_when_slow.tell": _THREAD,
        "_device.cuda:CudaDevice.synchronize": "what comes after it counts on the stream; a device that hangs has a time limit",
        "_device.death_watch:_Watch._wait": _THREAD,
        "_device.death_watch:_Watch.end": _BRIEF,
        "_device.device_faults:_Watch.__init__": _BRIEF,
        "_device.device_faults:_Watch._run": _THREAD,
        "_device.device_faults:_Watch.end": _WHOLE,
        "_device.mps_control:ask": _WHOLE,
        "_device.nvml:ask_links": _WHOLE,
        "_device.peer_check:check_peers": _WHOLE,
        "_gpu.device_spans:DeviceSpans.settle": _WHOLE,
        "_gpu.gpus:Gpus.settle": _WHOLE,
        "_gpu.nccl_member:NcclMember._abort": _WHOLE,
        "_gpu.nccl_member:NcclMember._watch": _THREAD,
        "_gpu.nccl_member:NcclMember.destroy": _BRIEF,
        "_graph.caller.executions:Executions._unlocked": "takes a lock back that nobody owns in a sleep",
        "_graph.caller.executions:Executions._wait_unlocked": "takes a lock back that nobody owns in a sleep",
        "_ipc.zero_copy:_before_fork": "takes a lock that nobody owns in a sleep",
        "_ipc.connection:SocketConnection.drain": _WHOLE,
        "_ipc.connection:SocketConnection.is_cut": "the time is 0",
        "_ipc.connection:SocketConnection.readable": "the socket does not block",
        "_ipc.connection:receive_fds": "the socket does not block",
        "_ipc.copying:_Helper.__init__": _BRIEF,
        "_ipc.copying:_Helper._run": _THREAD,
        "_ipc.copying:_Helper.dismiss": "until a helper has copied its piece",
        "_ipc.copying:_Helper.end": _BRIEF,
        "_ipc.introductions:Introductions._is_ready": "the time is 0",
        "_ipc.introductions:_exactly": "the rest of a packet is there",
        "_ipc.listener:ChannelAcceptor._take": "the socket does not block",
        "_ipc.listener:ListenerAcceptor._take": "the socket does not block",
        "_ipc.memory_order:_fence_locked": _BRIEF,
        "_ipc.memory_order:_fence_paired": _BRIEF,
        "_ipc.pidfd:PidFd.wait": _WHOLE,
        "_ipc.process:carrying": _WHOLE,
        "_ipc.reactor:Reactor.__init__": _BRIEF,
        "_ipc.reactor:Reactor._run_background_reader": _THREAD,
        "_ipc.reactor:Reactor.close": _WHOLE,
        "_ipc.reaper:kill_processes": _WHOLE,
        "_ipc.semaphore:Relay._run": _THREAD,
        "_ipc.semaphore:Relay.join": _BRIEF,
        "_ipc.waiting:Waiter.__init__": _BRIEF,
        "_joining.persistent:JoinedSession.node_lost": _WHOLE,
        "_picture.graphviz:picture": _WHOLE,
        "_runtime.environment.package_builder:_run": _BUILDER,
        "_runtime.node.introducer:Introducer._asked": _NODE,
        "_runtime.processes.host_program:_is_the_same": _WHOLE,
        "_runtime.processes.native_threads:lasting_threads": _WHOLE,
        "_runtime.processes.supervisor:Supervisor.end_all": _NODE,
        "_runtime.processes.template:_Running.end": _WHOLE,
        "_runtime.processes.template:_reaped": _TEMPLATE,
        "_runtime.processes.zygote:Zygote._reap": _NODE,
        "_runtime.session.launching:reap_node": _WHOLE,
        "_runtime.processes.line_coverage:begin.save": _WHOLE,
        "_runtime.processes.stack_signal:ask": _WHOLE,
        "_runtime.processes.supervisor:Supervisor._zygote_spoke": _NODE,
        "_runtime.processes.template:_Running._receive_pid": _WHOLE,
        "_runtime.processes.template:serve": _TEMPLATE,
        "_runtime.processes.zygote:Zygote.run": _NODE,
        "_runtime.session.breakpoints:attach": "the command line's, which has a session of nobody's",
        "_runtime.session.driver_output:OutputPrinter.flush": _WHOLE,
        "_runtime.session.remote_pdb:_Terminal.close": "the socket does not block",
        "_runtime.worker.thread_group:ThreadGroupExecutor._work": _GROUP,
        "proxy._connection:Sender._deliver": _THREAD,
        "proxy._inbox:Inbox.wait_done": _GROUP,
        "proxy._step_stream:RemoteReference.token": "ends with the interpreter, at the latest",
        "proxy._token:Tokens._look": _THREAD,
        "util.state._processes:_nvidia_smi": _WHOLE,
    },
    PRECEDES: {},
    DISPATCHES: {
        "_channel.group:Group._release": "cancels subscriptions",
        "_device.death_watch:_Watch._wait": _THREAD,
        "_gpu.mps:SessionMps._finish": _NODE,
        "_ipc.connection:SocketConnection._take": "called by the reactor through its table of callbacks",
        "_ipc.connection:SocketConnection.read_rest": "called where the connection has ended",
        "_ipc.connection:SocketConnection.readable": "called by the reactor through its table of callbacks",
        "_ipc.copying:_Calls.make": "copies",
        "_ipc.reactor:Reactor._sleep": "precedes; after an error it reads, and does not sleep",
        "_ipc.reactor:Reactor.start_background_reader": _THREAD,
        "_runtime.client.actor_calls:ActorCaller.announce": "carries out an instruction, for a message or a call",
        "_runtime.client.reconstruction:Recipe.make": "looks weak references up",
        "_runtime.connections.ends:Ends.settle": "called by what dispatches a report of the node",
        "_runtime.connections.endpoint:Endpoint._hung_up": "called by what dispatches a hang-up",
        "_runtime.connections.requests:Answer._call_back": "called by what dispatches the answer",
    },
    USERS: {
        "_api.counterpart:asked_of_ray.decorate.call": _SENT,
        "_api.dag_output:with_outputs.call": _PYTHON,
        "_common.own_frames:hide_from_now_on.structured_traceback": "calls IPython",
        "_device.exports:TensorExports._give_back_spares": "a generator of mray's",
        "_gpu.device_spans:DeviceSpans.around_method.marked": _PYTHON,
        "_graph.actor.coroutines:to_the_end.call": "a coroutine, which has a frame",
        "_graph.actor.overlap:Overlap._after.settled": _PYTHON,
        "_graph.actor.program:_callable_of": _PYTHON,
        "_graph.actor.program:_compute.call": _PYTHON,
        "_graph.watch.probes:RangeProbe.method.annotated": _PYTHON,
        "_graph.watch.probes:SpanProbe.method.traced": _PYTHON,
        "_libraries.core.async_compat:sync_to_async.wrapper": _PYTHON,
        "_libraries.core.auto_init_hook:wrap_auto_init.with_session": _SENT,
        "_runtime.node.node:Node._ask_to_trim": _NODE,
        "_runtime.session.progress_bars:safe_print": "prints",
        "_runtime.worker.concurrency_groups:ConcurrencyGroups._construct": _PYTHON,
        "_runtime.worker.concurrency_groups:ConcurrencyGroups._construct_in.run": _PYTHON,
        "_runtime.worker.executor:Executor.become": _PYTHON,
        "_runtime.worker.stream_producer:Producers.run": "begins what `_drive` runs",
        "_runtime.worker.stream_producer:Producers.run_in_loop": "in an event loop",
        "_runtime.worker.unpacker:Unpacker._method": "a function for `begin` to call",
        "cloudpickle:_debugged": "calls cloudpickle",
        "experimental.channel.accelerator_context:AcceleratorContext.create_communicator": _PYTHON,
        "proxy._interpreter:Interpreter._do": "calls what `_step` runs",
        "proxy._interpreter:Interpreter.call": "calls what `_step` runs",
        "proxy._step:_call": _GROUP,
        "proxy._step:_call_named": _GROUP,
        "proxy._step:_ufunc": _GROUP,
        "proxy._var:RemoteInterpreter.call_id": _SENT,
        "proxy._var:RemoteInterpreter.method_call_id": _SENT,
        "proxy._var:Var.__array_ufunc__": _SENT,
        "util.annotations:_warning_of.warn": _PYTHON,
        "util.state.api:_ask_ray": _SENT,
    },
    UNDONE: {
        "_graph.caller.ref:CompiledDAGRef.get_among": "called by `mray.get`, which undoes it",
        "_api.dag_output:output": "memory, which the graph gives again",
        "proxy._var:RemoteInterpreter.next_of_id": "an item of a remote iterator, which keeps none",
    },
}  # fmt: skip

#: Rooms that users call, and modules of other rooms; and a private name that Ray's libraries call.
_DOORS = ("_api", "actor", "dag", "experimental", "util")
_MORE_DOORS = ("_graph.caller.compiled", "_graph.caller.copies", "_graph.caller.future", "_graph.caller.ref", "proxy._var")
_OF_LIBRARIES = "_next_sync"


def is_door(name: str) -> bool:
    """Whether users call a function of this name."""
    module, _colon, path = name.partition(":")
    room, *parts = module.split(".")
    own = path.rpartition(".")[2]
    if re.match("_[^_]", own) and own != _OF_LIBRARIES:
        return False
    return room == "_api" or module in _MORE_DOORS or (room in _DOORS and not any(part.startswith("_") for part in parts))


def module_of(path: str) -> str:
    return path.removeprefix("mray/").removesuffix(".py").replace("/", ".")


@cache
def functions() -> dict[str, list[Function]]:
    """Those of mray's own code, by the paths of their files."""
    return {
        path: list(functions_of(module_of(path), tree))
        for path, tree in modules().items()
        if kind_of_file(path) == OWN and not path.startswith(_APART)
    }


def of_package() -> dict[str, set[str]]:
    return unmarked([each for those in functions().values() for each in those], is_door)


def test_each_function_has_its_mark_or_a_reason() -> None:
    found = of_package()
    assert {mark: sorted(names - EXEMPT[mark].keys()) for mark, names in found.items()} == {mark: [] for mark in EXEMPT}
    assert {mark: sorted(EXEMPT[mark].keys() - names) for mark, names in found.items()} == {mark: [] for mark in EXEMPT}
    assert all(reason for exempt in EXEMPT.values() for reason in exempt.values())


def marked() -> list[tuple[str, str, str]]:
    """(path, function, mark) of each mark of the package."""
    return [(path, each.name, mark) for path, those in functions().items() for each in those for mark in each.marks if mark in EXEMPT]


def test_the_package_without_one_of_its_marks_is_found() -> None:
    assert {mark for _path, _name, mark in marked()} == EXEMPT.keys()
    missed = []
    for path, name, mark in marked():
        lines = Path(path).read_text().splitlines(keepends=True)
        for each in functions()[path]:
            if each.name == name:
                decorators = [line for line in each.node.decorator_list if mark in ast.unparse(line)]
                for decorator in decorators:
                    lines[decorator.lineno - 1] = "\n"
        mutant = list(functions_of(module_of(path), ast.parse("".join(lines))))
        others = [each for where, those in functions().items() if where != path for each in those]
        if name not in unmarked([*others, *mutant], is_door)[mark]:
            missed.append((name, mark))
    assert not missed, missed


@pytest.mark.parametrize(
    ("mark", "source"),
    [
        (SLEEPS, "def f(lock):\n    lock.acquire(True, 3)"),
        (SLEEPS, "def f():\n    sleep(1)"),
        (SLEEPS, "def f():\n    for key in selector.select(left): pass"),
        (SLEEPS, "def f(block): return block()"),
        (SLEEPS, "class A:\n    def __init__(self): self.changed = threading.Condition()\n    def f(self): self.changed.wait()"),
        (SLEEPS, "def f():\n    thread = threading.Thread(target=g)\n    thread.join()"),
        (SLEEPS, "def f(): return os.waitpid(1, 0)"),
        (PRECEDES, "class A:\n    @dispatches\n    def run(self): self.f()\n    def f(self): self.guard.sleep(self.poll)"),
        (DISPATCHES, "class A:\n    def f(self):\n        for callback in tuple(self.callbacks): callback()"),
        (DISPATCHES, "class A:\n    def f(self):\n        callback = self.deferred.popleft()\n        callback()"),
        (DISPATCHES, "def f(connection): connection.read_ring()"),
        (USERS, "def f(function, args, kwargs): return function(*args, **kwargs)"),
        (USERS, "def f(self, call, args, kwargs): return self.bound(call)(*args, **kwargs)"),
        (USERS, "def f(function, items): return [*map(function, items)]"),
        (USERS, "def f(generator): return next(generator)"),
        (USERS, "def f(generator):\n    for item in generator: pass"),
        (UNDONE, "class A:\n    def f(self): return self.values.popleft()"),
        (UNDONE, "class A:\n    def f(self):\n        value = self.values.pop(0)\n        self.count -= 1\n        return value"),
        (UNDONE, "class A:\n    def f(self):\n        value = self.graph.fetch()\n        self.done = True\n        return value"),
        (UNDONE, "class A:\n    @undone(back)\n    def next(self): ...\n    def f(self): return self.next()"),
        (UNDONE, "class A:\n    @undone(back)\n    def __next__(self): ...\n    def f(self): return next(self)"),
        (UNDONE, "class A:\n    @undone(back)\n    def get(self): ...\ndef f(ref, timeout): return ref.get(timeout)"),
    ],
)  # fmt: skip
def test_a_function_without_a_mark_is_found(mark: str, source: str) -> None:
    found = unmarked(list(functions_of("util.made_up", ast.parse(source))), is_door)
    assert [name.rpartition(".")[2].rpartition(":")[2] for name in found.pop(mark)] == ["f"]
    assert not any(any(name.endswith("f") for name in names) for names in found.values())


@pytest.mark.parametrize(
    "source",
    [
        "def f(lock): return lock.acquire(False)",
        "def f(poll): return poll.poll(0)",
        "def f(self): self.guard.sleep(self.lock.acquire)",
        "async def f(): await asyncio.sleep(1)",
        "def f(names): return ', '.join(names)",
        "def f(): os.waitpid(-1, os.WNOHANG)",
        "class A:\n    @dispatches\n    def run(self): self.f()\n    def f(self):\n        for callback in self.callbacks: callback()",
        "def f(kwargs): return helper(*kwargs)",
        "def f():\n    names = []\n    return names.pop()",
        "class A:\n    def f(self):\n        yield self.values.pop()",
        "class A:\n    def _f(self): return self.values.pop()",
        "@runs_users\ndef f(function, args, kwargs): return function(*args, **kwargs)",
    ],
)
def test_a_function_that_wants_none_is_not_found(source: str) -> None:
    found = unmarked(list(functions_of("util.made_up", ast.parse(source))), is_door)
    assert not any(found.values())
