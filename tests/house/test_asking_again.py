"""Code that asks again has a bound or a condition: each such place is listed here with it, and a place that is not listed fails.

A place asks again that sets a timer, that sleeps or connects in a loop, or that sends a request for a worker, a process or a state. A wait
for the kernel, in a poll, asks nobody.
"""

from __future__ import annotations

import ast

from tests.house.source import places, places_in

#: Sets a timer. (`InterruptGuard.later` is the reactor's `call_later`.)
TIMER = {"call_later", "later"}
#: In a loop: lets time pass, or tries what may fail.
PAUSE = {"sleep", "connect", "connect_ex", "sched_yield"}
#: Asks for a worker, a process, or to be told.
ASK = {"LEASE_REQUEST", "ACTOR_SUBSCRIBE", "SpawnWorker", "_start_zygote", "fork"}

#: Once: the place does not come back to itself.
ONCE = "once"

#: Place (module below mray and function) -> its bound or condition.
BOUNDS = {
    # timers
    "_gpu.mps:SessionMps._ask": ONCE,
    "_gpu.mps:SessionMps._look.looked": "for _START_SECONDS, or until the daemon ends",
    "_gpu.mps:SessionMps._terminate": ONCE,
    "_gpu.mps:SessionMps.kill": ONCE,
    "_common.bridge:call_later": ONCE,
    "_common.bridge:called": ONCE,
    "_backends.local.local_node:LocalNode._carry_out": ONCE,
    "_backends.local.transport:LocalReactor.call_later": ONCE,
    "_backends.native:NativeBackend.call_later": ONCE,
    "_graph.caller.graph_loop:LoopWatcher.sleep": ONCE,
    "_ipc.interrupts:InterruptGuard._look_later": "until no handler of a signal is due: it waits for mray's code to come to an end",
    "_ipc.listener:Acceptor._rest": "as long as nobody can be accepted for want of descriptors; each is told so as soon as one is there",
    "_runtime.node.stray_workers:StrayWorkers._look_after": ONCE,
    "_runtime.node.stray_workers:StrayWorkers.hung_up": ONCE,
    "_runtime.client.awaiting:AwaitedRefs._look": "as long as a coroutine waits and another thread reads",
    "_runtime.client.long_lists:LongLists.keep": ONCE,
    "_runtime.client.long_lists:LongLists._look": "as long as lists are kept: two looks after the last call",
    "_runtime.client.cancelling:Interrupts._send": "until the signal has landed, or the task that it was for is over",
    "_runtime.node.graceful_kill:GracefulKill.kill": ONCE,
    "_runtime.processes.interpreters:Interpreters._long": "as long as the builder runs: it tells drivers that it does",
    "_runtime.processes.interpreters:Interpreters._overdue": ONCE,
    "_runtime.processes.interpreters:Interpreters._start": ONCE,
    "_runtime.processes.interpreters:Interpreters.when_ready": ONCE,
    "_runtime.client.leases:TaskPool.await_pause": ONCE,
    "_runtime.client.leases:TaskPool.await_turn": ONCE,
    "_runtime.client.leases:TaskPool.watch_idle": "as long as the pool has an idle lease that is younger than KEEP_SECONDS",
    "_runtime.client.leases:TaskPool.watch_pipelines": "as long as a task waits behind another",
    "_runtime.node.memory_monitor:MemoryMonitor._look": "as long as the node lives, which looks at the machine's memory and asks nobody",
    "_runtime.node.memory_monitor:MemoryMonitor.start": ONCE,
    "_runtime.worker.time_limit:TimeLimit._look_at": "once for the limit of the running task, and once for its grace",
    "_runtime.client.leases:TaskPool.rest": "max_retries and task_oom_retries times for each task",
    "_runtime.client.actor_calls:ActorCaller.await_rest": "max_task_retries times for each call, and once where it is not retried",
    "_runtime.node.node:Node._answer_trimmed": "for _TRIM_WAIT seconds",
    "_runtime.node.node:Node._carry_out": ONCE,
    "_runtime.node.node:Node._flush_for_strangers": ONCE,
    "_runtime.node.node:Node._touch_files": "as long as the node lives, which touches what is its own",
    "_runtime.node.node:Node.serve": ONCE,
    "_runtime.processes.supervisor:Supervisor._hold": "while the beginning of a line is held back: _LONGEST_HOLD seconds",
    "_runtime.processes.supervisor:Supervisor._look_at_piece": "while the beginning of a line is held back: _LONGEST_HOLD seconds",
    "_runtime.processes.supervisor:Supervisor._exec": "through _pause: _START_ATTEMPTS times",
    "_runtime.processes.supervisor:Supervisor._no_zygote": "_START_ATTEMPTS times; then the session ends",
    "_runtime.processes.supervisor:Supervisor._pause": "_START_ATTEMPTS times; then the worker is refused",
    "_runtime.processes.supervisor:Supervisor.kill": ONCE,
    "_runtime.processes.supervisor:Supervisor._go_without": ONCE,
    "_runtime.processes.supervisor:Supervisor._zygote_spoke": ONCE,
    "_runtime.node.deadlocks:Deadlocks._begin": ONCE,
    "_runtime.node.deadlocks:Deadlocks._end": "once: the second look",
    "_runtime.node.deadlocks:Deadlocks._look_soon": "once for the reports since the last look: a process reports a wait ever more seldom",
    "_runtime.node.unmet_waits:UnmetWaits._look": "as long as something waits; it looks at the node's own books and asks nobody",
    "_runtime.processes.wrapped:WrappedWorkers._worker_ended": ONCE,
    "util._worker_pool:MemberPool._go_on": ONCE,
    "util._worker_pool:MemberPool._look": "as long as the load is uneven",
    "util._worker_pool:MemberPool._replace": ONCE,
    # loops
    "_libraries.core.test_utils:async_wait_for_condition": "until the time that its caller gave has passed",
    "_libraries.core.test_utils:wait_for_condition": "until the time that its caller gave has passed",
    "_backends.ray.ray_compiled:RayGraph.explained": "for _UNTIL_DEAD seconds",
    "_gpu.nccl_member:NcclMember._abort": "for _GRACE seconds",
    "_device.cuda:CudaDevice.synchronize": "until the stream has done what is queued, which nothing of mray waits for; signals end it",
    "testing.points:_Points._do": "until the test has made a file",
    "testing.null:NullDevice._await": "until somebody has set the word, or the device has broken down",
    "testing.null_stream:Streams.enter": "until a full queue has room, as in a driver, or the device has broken down",
    "testing.null_nccl:_connect": "until the deadline that it was given",
    "_gpu.device_spans:DeviceSpans.settle": "for SETTLING seconds",
    "_gpu.gpus:Gpus.settle": "for the seconds that it was given",
    "_ipc.process:carrying": "for the seconds that it was given",
    "_ipc.spin:AdaptiveSpinner.spin": "for the spinner's window",
    "_ipc.reactor:Reactor._become_reader": "until it reads, or its predicate holds: it sleeps in between",
    "_joining.persistent:JoinedSession.node_lost": "for _CLEAN_SECONDS",
    "_runtime.processes.stack_signal:ask": "for the seconds that it was given",
    "proxy._connection:Sender._deliver": "once for each message; it sleeps while there is none",
    "pytest_plugin.leaks:assert_nothing_left": "for the seconds that it was given",
    # asking for workers, processes and states
    "_runtime.client.actor_calls:ActorCaller.ask_node": "once for each actor: its state is not unknown then",
    "_runtime.client.leases:TaskPool.request": "one for each waiting task; tasks fail after MOST_UNREACHABLE workers that do not answer",
    "_runtime.processes.template:Template.launch_node": ONCE,
    "_runtime.processes.supervisor:Supervisor._zygote_ended": "_ZYGOTE_ATTEMPTS deaths without a worker; then the session ends",
    "_backends.entry:_run_node": ONCE,
    "_runtime.processes.template:_fork": ONCE,
    "_runtime.processes.native_threads:lasting_threads": ONCE,
    "cli.commands.metrics:serve_apart": ONCE,
    "_runtime.processes.template:serve": "one for each node that the driver orders",
    "_runtime.processes.zygote:Zygote._serve": "one for each worker that the node orders",
    "_decide.scheduler.scheduler:Scheduler._spawn": "SPAWN_ATTEMPTS deaths at the start in a row for an environment, then a refusal",
}


def _name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _asks(node: ast.AST) -> bool:
    """Whether this very node may ask again."""
    if isinstance(node, ast.Call):
        name = _name(node.func)
        if name in TIMER or name in ASK:
            return True
        return any(_name(each) in ASK for argument in node.args for each in ast.walk(argument) if isinstance(each, ast.Attribute))
    return isinstance(node, ast.While) and any(_name(each.func) in PAUSE for each in ast.walk(node) if isinstance(each, ast.Call))


def test_whatever_asks_again_is_listed_with_its_bound_or_condition() -> None:
    found = set(places(_asks))
    assert sorted(found - BOUNDS.keys()) == []
    assert sorted(BOUNDS.keys() - found) == []
    assert all(BOUNDS.values())


def test_a_loop_that_asks_again_is_seen() -> None:
    timer = "def f(self):\n    self.reactor.call_later(1, self.f)\n"
    loop = "def g(self):\n    while True:\n        sock.connect(path)\n"
    assert list(places_in(ast.parse(timer + loop), _asks)) == ["f", "g"]
