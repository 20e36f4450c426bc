"""Outgoing tasks: pools of tasks with the same (resources, environment), and the leased workers that run them.
`mray._decide.caller.lease_pool` decides; pools carry it out.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

from mray._common import messages as m
from mray._common.causes import Cause
from mray._common.clock import Clock
from mray._decide.caller import caller_instructions as do
from mray._decide.caller.lease_pool import KEEP_SECONDS, MOST_UNREACHABLE, PAUSE_SECONDS, STUCK_SECONDS, Lease, LeasePool
from mray._ipc.connection import Connection
from mray._runtime.client.calls import WAITS_FOR_ARGUMENTS, WAITS_FOR_WORKER, Call, lost_call
from mray._runtime.client.reconstruction import remember
from mray._runtime.connections.deaths import refused_error, worker_error
from mray._runtime.connections.part import Part, Row, Unanswered
from mray.exceptions import RaySystemError

if TYPE_CHECKING:
    from mray._runtime.client.arguments import Arguments
    from mray._runtime.connections.endpoint import Endpoint
    from mray._runtime.connections.ends import Ended
    from mray._runtime.objects.borrowing import Borrowing


class TaskPool:
    """Carries out what a `LeasePool` decides. All methods need the client's lock."""

    awaits_arguments = True

    def __init__(self, pools: LeasePools, key: Any, demand: dict[str, Any], single: bool, rest: tuple[float, ...] | None) -> None:
        self.pools = pools
        self.client = pools.client
        self.demand = demand
        retriable = bool(demand.get("retriable"))
        if rest is None:
            rest = (pools.client.info["retry_delay"],)
        self.tasks: LeasePool[Call] = LeasePool(key, pools.numbers, single=single, retriable=retriable, timed=pools.timed, rest=rest)
        self._clock = pools.clock
        #: Failed tasks until their next attempt. Those whose worker was killed because memory ran low rest longer each time; such attempts
        #: do not count against `max_retries`.
        self.resting: set[Call] = set()
        #: Instructions being carried out.
        self._under_way: do.Instructions | None = None

    def follow(self, instructions: do.Instructions) -> None:
        """Carry out instructions, and then those that result from them.

        A failed instruction does not stop the others, because links have recorded the tasks to be pushed. The first error is raised at
        the end.
        """
        if self._under_way is not None:
            self._under_way += instructions
            return
        self._under_way = instructions
        failure: Exception | None = None
        try:
            for instruction in instructions:
                try:
                    _WAYS[type(instruction)](self, instruction)
                except Exception as error:
                    failure = failure or error
        finally:
            self._under_way = None
        if failure is not None:
            raise failure

    # ------------------------------------------------------------------------------------ events
    def submit(self, call: Call) -> None:
        call.source = self
        if self.client.fatal is not None:
            call.fail(self.client.fatal)
            return
        lease = self.tasks.immediate_lease(call)
        if lease is not None and self._under_way is None:
            self.tasks.pushed(lease, call, self._clock())
            self._post(lease, call)
        elif instructions := self.tasks.submitted(call, self._clock()):
            self.follow(instructions)

    def submit_when_ready(self, call: Call) -> None:
        if call.arguments is None or not self.pools.arguments.wait(call, self):
            self.submit(call)

    def ready(self, call: Call) -> None:
        if call.waiting == 0:
            self.submit(call)

    def replied(self, call: Call) -> None:
        lease: Lease = call.lease
        if call.entry is None or call.entry.form == m.SEGMENT:
            remember(call)
        if instructions := self.tasks.replied(lease, self._clock()):
            self.follow(instructions)
            lease.link.flush()

    def attempt_failed(self, call: Call) -> None:
        lease: Lease = call.lease
        self.follow(self.tasks.attempt_failed(lease, call, self._clock()))
        lease.link.flush()

    def given_back(self, lease: Lease, calls: list[Call]) -> None:
        self.follow(self.tasks.given_back(lease, calls, self._clock()))
        lease.link.flush()

    def granted(self, number: int, lease_id: int, process: str, terms: tuple[Any, ...]) -> None:
        error: OSError | None = None
        connection = None
        try:
            connection = self.client.try_peer(process)
        except OSError as failed:  # no descriptor is left
            error = failed
        if connection is None:
            self.follow(self.tasks.unreachable(number, lease_id, process, error, self._clock()))
        else:
            now = self._clock()
            self.follow(self.tasks.granted(number, Lease(lease_id, process, connection, now, terms), now))
            connection.flush()

    def lost(self, lease: Lease, cause: Cause) -> None:
        # POINT lease lost
        self.tasks.worker_ended(lease)
        lease.link.read_rest()
        self.follow(self.tasks.lost(lease, cause, self._clock(), self.client.info["oom_retries"]))

    def cancel(self, call: Call) -> bool:
        """False if the task was pushed."""
        if call in self.resting:
            self.resting.discard(call)
            return True
        return self.tasks.cancelled(call)

    def rests(self, call: Call) -> bool:
        return call in self.resting

    def _rest_passed(self, call: Call) -> None:
        with self.client.lock:
            if call in self.resting:
                self.resting.discard(call)
                self.submit(call)

    def _stuck_time_passed(self) -> None:
        with self.client.lock:
            self.follow(self.tasks.stuck_time_passed(self._clock()))

    def _keep_time_passed(self) -> None:
        with self.client.lock:
            self.follow(self.tasks.keep_time_passed(self._clock()))

    def _turn_passed(self, lease: Lease) -> None:
        with self.client.lock:
            self.follow(self.tasks.turn_passed(lease))

    def _pause_passed(self, lease: Lease, since: float) -> None:
        with self.client.lock:
            self.follow(self.tasks.pause_passed(lease, since))

    # ------------------------------------------------------------------------------------ instructions
    def request(self, request: do.Request) -> None:
        number, task = request
        self.pools.requests[number] = self
        # A request is labelled with the first task that waits now.
        demand, label = self.demand, f"task {task.name}"
        self.client.node.send((m.LEASE_REQUEST, number, demand if demand.get("label") == label else {**demand, "label": label}))

    def cancel_requests(self, cancel: do.CancelRequests) -> None:
        for number in cancel.numbers:
            self.client.node.post((m.LEASE_CANCEL, number))
            self.pools.requests.pop(number, None)
        self.client.node.flush()

    def decline(self, decline: do.Decline) -> None:
        self.client.node.send((m.LEASE_RETURN, decline.lease_id))

    def begin(self, begin: do.Begin) -> None:
        lease = begin.lease
        self.pools.leases[lease.lease_id] = self, lease
        lease.link.peer.lease = self, lease
        resources, gpus, cpus, accelerators = lease.terms
        options = self.demand.get("options")
        if cpus or accelerators:
            options = {**(options or {}), "cpus": cpus, "accelerators": accelerators}
        lease.link.post((m.LEASED, lease.lease_id, resources, gpus, options))
        self.client.ends.then(lease.process, self.pools.worker_ended)

    def push(self, push: do.Push) -> None:
        lease, calls = push
        failure: Exception | None = None
        for call in calls:
            try:
                self._post(lease, call)
            except Exception as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def _post(self, lease: Lease, call: Call) -> None:
        connection: Connection = lease.link
        # POINT task noted
        function_id, blob, name, _guard = call.method
        sent = connection.peer.functions
        if function_id not in sent:
            sent.add(function_id)
            connection.post((m.FUNCTION, function_id, blob))
        values = None if call.arguments is None else call.argument_values(self.pools.borrowing.export)
        message = (m.TASK, call.task_id, function_id, call.num_returns, call.form, call.payload, call.refs, values, call.options, name)
        if call.options is None:
            self.client.send_call(connection, message)
        elif not call.send(self.client, connection, message):
            self.follow(self.tasks.unsent(lease, self._clock()))

    def give_back(self, returned: do.Return) -> None:
        lease = returned.lease
        # POINT lease given up
        self.pools.leases.pop(lease.lease_id, None)
        if not self.client.node.closed:
            self.client.node.send((m.LEASE_RETURN, lease.lease_id))

    def rest(self, rest: do.Rest) -> None:
        self.resting.add(rest.task)
        self.client.reactor.call_later(rest.seconds, lambda: self._rest_passed(rest.task))

    def fail_unreachable(self, fail: do.FailUnreachable) -> None:
        what = f"Of {MOST_UNREACHABLE} workers in a row that the node has granted none could be connected to"
        where = f"The session's directory is {self.client.session_dir}."
        fail.task.fail(RaySystemError(f"{what}, the last of them process {fail.process}. {where}"))

    def watch_pipelines(self, _watch: do.WatchPipelines) -> None:
        self.client.reactor.call_later(STUCK_SECONDS, self._stuck_time_passed)

    def watch_idle(self, _watch: do.WatchIdle) -> None:
        self.client.reactor.call_later(KEEP_SECONDS, self._keep_time_passed)

    def await_turn(self, wait: do.AwaitTurn) -> None:
        self.client.reactor.call_later(wait.seconds, lambda: self._turn_passed(wait.lease))

    def await_pause(self, wait: do.AwaitPause) -> None:
        self.client.reactor.call_later(PAUSE_SECONDS, lambda: self._pause_passed(wait.lease, wait.since))

    # ------------------------------------------------------------------------------------ questions
    def connection_of(self, call: Call) -> Connection | None:
        if call.lease is None:
            return None
        connection: Connection = call.lease.link
        return connection

    def ahead(self, _call: Call) -> Sequence[Call]:
        return ()

    def request_for(self, call: Call) -> int:
        """A request of the node for a worker that this call needs; 0 if it has one, or others of its kind have, which may take it."""
        tasks = self.tasks
        return 0 if call.lease is not None or call.waiting or tasks.leases or call in self.resting else min(tasks.requests, default=0)

    def origin(self, call: Call) -> Row:
        process = "" if call.lease is None else call.lease.process
        return {"task": call.name, "actor_id": b"", "process": process, "object_id": b""}


_WAYS: dict[type[Any], Callable[[TaskPool, Any], None]] = {
    do.Push: TaskPool.push,
    do.Request: TaskPool.request,
    do.CancelRequests: TaskPool.cancel_requests,
    do.Decline: TaskPool.decline,
    do.Begin: TaskPool.begin,
    do.Reclaim: lambda _pool, reclaim: reclaim.lease.link.send((m.RECLAIM, reclaim.tasks)),
    do.Return: TaskPool.give_back,
    do.Rest: TaskPool.rest,
    do.Cancel: lambda _pool, cancel: cancel.call.cancel(),
    do.Fail: lambda _pool, fail: fail.call.fail(fail.error),
    do.FailLost: lambda _pool, fail: fail.task.fail(worker_error(fail.task.name, fail.cause), fail.process),
    do.FailRefused: lambda _pool, fail: fail.task.fail(refused_error(fail.text)),
    do.FailUnreachable: TaskPool.fail_unreachable,
    do.WatchPipelines: TaskPool.watch_pipelines,
    do.WatchIdle: TaskPool.watch_idle,
    do.AwaitTurn: TaskPool.await_turn,
    do.AwaitPause: TaskPool.await_pause,
}


class LeasePools(Part):
    def __init__(
        self, client: Endpoint, borrowing: Borrowing, arguments: Arguments, tell_refusal: Callable[[str], None], clock: Clock
    ) -> None:
        self.client = client
        self.borrowing = borrowing
        self.arguments = arguments
        self._tell_refusal = tell_refusal
        self.clock, self.timed = clock
        #: Weak, since every placement group has its own pools; plans, tasks, requests, leases and timers keep them alive.
        self._pools: weakref.WeakValueDictionary[Any, TaskPool] = weakref.WeakValueDictionary()
        #: By number, and by the lease's id.
        self.requests: dict[int, TaskPool] = {}
        self.leases: dict[int, tuple[TaskPool, Lease]] = {}
        self.numbers = count(1)
        client.from_node.on({m.LEASE_GRANT: self.on_grant, m.LEASE_REFUSED: self.on_refused, m.LEASE_RECALL: self.on_recall})
        client.from_peers.on({m.GIVEN_BACK: self.on_given_back, m.LEAVING: self.on_leaving})

    def pool(self, key: Any, demand: dict[str, Any], single: bool, rest: tuple[float, ...] | None = None) -> TaskPool:
        """`rest`: seconds before each retry of a task, the last before all further ones; None: those of the session."""
        pool = self._pools.get(key)
        if pool is None:
            pool = self._pools[key] = TaskPool(self, key, demand, single, rest)
        return pool

    # ------------------------------------------------------------------------------------ messages
    def on_grant(
        self,
        node: Connection,
        number: int,
        lease_id: int,
        process: str,
        resources: dict[str, Any],
        gpus: list[Any],
        cpus: list[int] | None = None,
        accelerators: dict[str, list[int]] | None = None,
    ) -> None:
        # POINT lease granted
        pool = self.requests.pop(number, None)
        if pool is None:
            node.send((m.LEASE_RETURN, lease_id))
        else:
            pool.granted(number, lease_id, process, (resources, gpus, cpus, accelerators))

    def on_refused(self, _node: Connection, number: int, text: str) -> None:
        pool = self.requests.pop(number, None)
        if pool is not None:
            self._tell_refusal(text)
            pool.follow(pool.tasks.refused(number, text))

    def on_recall(self, _node: Connection, lease_id: int) -> None:
        pool, lease = self.leases.get(lease_id, (None, None))
        if pool is not None and lease is not None:
            pool.follow(pool.tasks.recalled(lease, self.clock()))

    def on_given_back(self, connection: Connection, task_ids: list[bytes]) -> None:
        # POINT tasks given back
        calls = [call for call in (connection.calls.pop(task_id, None) for task_id in task_ids) if call is not None]
        if connection.peer.lease is not None:
            pool, lease = connection.peer.lease
            try:
                pool.given_back(lease, calls)
            except Exception as error:
                for call in calls:
                    lost_call(call, "GIVEN_BACK", error)
                raise

    def on_leaving(self, connection: Connection) -> None:
        if connection.peer.lease is not None:
            pool, lease = connection.peer.lease
            if not lease.over:
                pool.tasks.worker_leaves(lease)

    # ------------------------------------------------------------------------------------ functions
    def function_over(self, function_id: bytes) -> None:
        """Let the workers drop a function: this process has no function with this pickle and no call of it left.

        (Another function may have the same pickle. Its next call sends it again.)
        """
        with self.client.lock:
            for connection in self.client.peers.values():
                if function_id in connection.peer.functions and not connection.closed:
                    connection.peer.functions.discard(function_id)
                    connection.post((m.FUNCTION_OVER, function_id))
                    self.client.reactor.post_later(connection)

    # ------------------------------------------------------------------------------------ connections
    def connection_ended(self, connection: Connection, error: Exception | None, unread: bool) -> None:
        """Return the lease of a live worker that has read nothing, and push its tasks elsewhere."""
        if unread and connection.peer.lease is not None:
            pool, lease = connection.peer.lease
            if not lease.lost:
                pool.follow(pool.tasks.unread(lease, self.clock()))

    def worker_ended(self, end: Ended) -> None:
        """The worker has exited, or its connection broke; the node then kills it."""
        for pool, lease in tuple(self.leases.values()):
            if lease.process != end.process or (end.error is not None and not lease.link.closed):
                continue
            del self.leases[lease.lease_id]
            cause = end.cause or Cause(m.CAUSE_CRASH, str(end.error), lease.link.pid)
            if end.error is not None and not self.client.node.closed:  # the worker may not know of the lease
                self.client.node.send((m.LEASE_BREAK, lease.lease_id, cause.text))
            pool.lost(lease, cause)
        if end.error is not None:
            self.client.ends.then(end.process, self.worker_ended)

    # ------------------------------------------------------------------------------------ all pools
    def queued(self) -> Iterator[Call]:
        for pool in self._pools.values():
            yield from pool.tasks.queue
            yield from pool.resting

    def calls(self) -> Iterator[Unanswered]:
        for call in self.queued():
            yield call, WAITS_FOR_WORKER, ""
        for call in self._unready():
            yield call, WAITS_FOR_ARGUMENTS, ""

    def _unready(self) -> Iterator[Call]:
        """Tasks whose arguments are missing; calls of methods stand in the queues of their actors, too."""
        return (call for call in self.arguments.waiting if not isinstance(call.method, str))

    def count_calls(self) -> int:
        queued = sum(len(pool.tasks.queue) + len(pool.resting) for pool in self._pools.values())
        return queued + sum(1 for _call in self._unready())

    def give_back_idle(self) -> None:
        """Return idle leases; cancel requests for which no task waits."""
        for pool in self._pools.values():
            pool.follow(pool.tasks.called_in())

    def is_idle(self) -> bool:
        return all(pool.tasks.is_idle() and not pool.resting for pool in self._pools.values())

    def all_lost(self, error: BaseException) -> None:
        for pool in self._pools.values():
            pool.follow(pool.tasks.all_lost(error))
            for call in pool.resting:
                call.fail(error)
            pool.resting.clear()
        self.leases.clear()
        self.requests.clear()
