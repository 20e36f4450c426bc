"""Tasks on their way out: queues of tasks, and the leased workers they flow through.

In the caller's process. Tasks that ask for the same (resources, environment) form a *pool*. A pool asks the node for leases, pushes its
tasks straight to the leased workers, and keeps a lease a little while after its last task, so that a caller that asks and waits in turn
never meets the node; the node calls a lease back when another process waits for its resources.

The number of tasks that are pushed ahead to one worker follows from their length: about two milliseconds of work. A worker whose task
blocks gives back the tasks that it has not started, and so does a busy worker when another one is idle, or when its task turns out to be
long: no task starves behind a long one.

When a worker dies, the task at the head of its pipeline is charged for it; tasks pushed behind it go back to the queue uncharged, and from
then on the pool pushes one task at a time, so that the next death has one suspect.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

from mray._caller.records import CANCELLED
from mray._common import messages as m
from mray._common.causes import Cause
from mray._ipc.connection import Connection
from mray._runtime.client.calls import Call, lost_call
from mray._runtime.client.memory_retries import MemoryRetries
from mray._runtime.client.reconstruction import remember
from mray._runtime.connections.deaths import refused_error, worker_error
from mray.exceptions import RaySystemError

if TYPE_CHECKING:
    from mray._objects.ownership import Entry
    from mray._runtime.client.arguments import Arguments
    from mray._runtime.objects.borrowing import Borrowing
    from mray._runtime.objects.owner import Owner

#: Work pushed ahead to one worker, in seconds, and in tasks.
AHEAD_SECONDS = 0.002
AHEAD_TASKS = 200
#: How long a task may run before tasks behind it are taken back, in seconds.
STUCK_SECONDS = 0.01
#: How long an idle lease is kept, in seconds.
KEEP_SECONDS = 0.15
#: How long a lease is kept from its grant on, in seconds, while other processes wait for its resources and short tasks flow through it: two
#: drivers that are both busy take turns, and a turn that was one task long would be spent on the hand-over.
SLICE_SECONDS = 0.01
#: ... and how long it may be without tasks in that time: a driver that submits in waves would give it away between two of them.
PAUSE_SECONDS = 0.001
#: After so many granted workers in a row that cannot be connected to, the pool's tasks fail.
MOST_UNREACHABLE = 16
#: Lease requests of one pool that may wait at the node.
MOST_REQUESTS = 12


class Lease:
    """A worker on loan."""

    __slots__ = (
        "busy_since",
        "connection",
        "idle_since",
        "lease_id",
        "lost",
        "pool",
        "process",
        "recalled",
        "reclaiming",
        "since",
        "spent",
        "stalled",
        "wanted",
    )

    def __init__(self, pool: Pool, lease_id: int, process: str, connection: Connection) -> None:
        self.pool = pool
        self.lease_id = lease_id
        self.process = process
        self.connection = connection
        self.idle_since = 0.0
        #: When the task at the head of the pipeline may have begun.
        self.busy_since = 0.0
        #: When it was granted; whether another process waits for its resources; whether it takes no more tasks because of that.
        self.since = monotonic()
        self.wanted = False
        self.recalled = False
        self.reclaiming = False
        #: Its worker has given tasks back: no task is pushed until it replies again.
        self.stalled = False
        #: Its worker ends after its current task.
        self.spent = False
        self.lost = False

    def takes(self) -> bool:
        """Whether tasks may be pushed."""
        return not (self.lost or self.recalled or self.stalled or self.spent)


class Pool:
    """The tasks of one scheduling class. All methods need the client's lock."""

    awaits_arguments = True

    def __init__(self, pools: LeasePools, key: Any, demand: dict[str, Any], single: bool) -> None:
        self.pools = pools
        self.client = pools.client
        self.key = key
        self.demand = demand
        #: One task a lease: the worker ends after it (GPU tasks, max_calls=1).
        self.single = single
        self.queue: deque[Call] = deque()
        self.leases: dict[int, Lease] = {}
        self.requests: set[int] = set()
        #: Smoothed seconds from one reply to the next; None until measured.
        self.pace: float | None = None
        #: Replies to come before tasks are pushed ahead again.
        self.cautious = 0
        #: Granted workers in a row that could not be connected to.
        self.unreachable = 0

    # ------------------------------------------------------------------------------------ feeding
    def submit(self, call: Call) -> None:
        """Queue a task whose arguments are there."""
        call.source = self
        if self.client.fatal is not None:
            call.fail(self.client.fatal)
            return
        self.queue.append(call)
        self.feed()

    def submit_when_ready(self, call: Call) -> None:
        """Queue a task once its arguments are there."""
        if call.arguments is None or not self.pools.arguments.wait(call, self):
            self.submit(call)

    def new_entry(self) -> Entry:
        """The entry of a value that is going to be made."""
        return self.client.entry()

    def ready(self, call: Call) -> None:
        """Queue a waiting task, now that its arguments are there."""
        if call.waiting == 0:
            self.submit(call)

    def depth(self) -> int:
        """The number of tasks that one worker may hold."""
        if self.single or self.cautious or self.pace is None:
            return 1
        return max(1, min(AHEAD_TASKS, int(AHEAD_SECONDS / (self.pace + 1e-7))))

    def feed(self) -> None:
        """Push tasks to free leases, and ask for more leases if tasks are left."""
        queue = self.queue
        if queue:
            depth = self.depth()
            # Breadth first: a task runs sooner on an idle worker than behind another one.
            for lease in self.leases.values():
                if not lease.connection.calls and queue and lease.takes():
                    self._push(lease, queue.popleft())
            if depth > 1:
                for lease in self.leases.values():
                    calls = lease.connection.calls
                    while queue and len(calls) < depth and lease.takes() and queue[0].retries:
                        self._push(lease, queue.popleft())
                self.pools.watch_pipelines(self)
        if queue:
            wanted = min(len(queue), MOST_REQUESTS) - len(self.requests)
            for _ in range(wanted):
                self.pools.request(self)

    def _push(self, lease: Lease, call: Call) -> None:
        connection = lease.connection
        if not connection.calls:
            lease.busy_since = monotonic()
        connection.calls[call.task_id] = call
        # POINT task noted
        call.lease = lease
        lease.spent = self.single
        function_id, blob, name = call.method
        sent = connection.facts.setdefault("functions", set())
        if function_id not in sent:
            sent.add(function_id)
            connection.post((m.FUNCTION, function_id, blob))
        values = call.argument_values(self.pools.borrowing.export)
        message = (m.TASK, call.task_id, function_id, call.num_returns, call.form, call.payload, call.refs, values, call.options, name)
        if call.post(connection, message):
            self.client.posted(connection)
        else:
            lease.spent = False
            if not connection.calls:
                self.note_idle(lease, monotonic())

    # ------------------------------------------------------------------------------------ what comes back
    def replied(self, call: Call) -> None:
        """Push the next task to the worker of one that is done."""
        lease: Lease = call.lease
        if call.entry is None or call.entry.form == m.SEGMENT:
            remember(call)
        now = monotonic()
        took = now - lease.busy_since
        lease.busy_since = now
        lease.stalled = False
        if self.cautious:
            self.cautious -= 1
        pace = self.pace
        self.pace = took if pace is None else pace + (took - pace) * 0.2
        if took > AHEAD_SECONDS:
            self.pace = max(self.pace, took)
        self._next(lease, now)

    def _next(self, lease: Lease, now: float) -> None:
        calls = lease.connection.calls
        if self.single or lease.lost:
            return  # the worker ends by itself, and the node sends LEASE_LOST; or has ended, and its last messages are read
        queue = self.queue
        if queue and lease.takes():
            depth = self.depth()
            if len(calls) <= depth // 2:
                while queue and len(calls) < depth and (not calls or queue[0].retries):
                    self._push(lease, queue.popleft())
                lease.connection.flush()
                if len(calls) > 1:
                    self.pools.watch_pipelines(self)
        if not calls:
            self.note_idle(lease, now)

    def note_idle(self, lease: Lease, now: float) -> None:
        """Take over tasks of a busy worker, or give the lease back now or later: this worker's pipeline is empty."""
        if lease.wanted and not lease.recalled:
            lease.idle_since = now
            self.client.reactor.call_later(PAUSE_SECONDS, lambda: self._end_pause(lease, now))
            return
        if lease.recalled:
            self.give_back(lease)
            return
        lease.idle_since = now
        self.pools.watch_idle(self)
        for other in self.leases.values():
            waiting = len(other.connection.calls) - 1
            if waiting > 0 and not other.reclaiming and not other.lost:
                other.reclaiming = True
                other.connection.send((m.RECLAIM, (waiting + 1) // 2))
                return
        self.cancel_requests()

    def cancel_requests(self) -> None:
        """Ask for no more leases; a grant that is under way is returned."""
        for number in self.requests:
            self.client.node.post((m.LEASE_CANCEL, number))
        if self.requests:
            for number in self.requests:
                self.pools.cancelled(number)
            self.requests.clear()
            self.client.node.flush()

    def _end_pause(self, lease: Lease, since: float) -> None:
        with self.client.lock:
            if not lease.connection.calls and lease.idle_since == since and not lease.lost:
                self.give_back(lease)

    def take_back_stuck(self, now: float) -> bool:
        """Take back tasks behind one that has turned out to be long; returns whether any task waits behind another."""
        waiting = False
        for lease in self.leases.values():
            behind = len(lease.connection.calls) - 1
            if behind > 0 and not lease.lost:
                waiting = True
                if now - lease.busy_since > STUCK_SECONDS and not lease.reclaiming:
                    lease.reclaiming = True
                    lease.connection.send((m.RECLAIM, behind))
        return waiting

    def give_back(self, lease: Lease) -> None:
        """Return a lease whose pipeline is empty."""
        if self.leases.pop(lease.lease_id, None) is not None:
            # POINT lease given up
            self.pools.forget(lease.lease_id)
            if not self.client.node.closed:
                self.client.node.send((m.LEASE_RETURN, lease.lease_id))

    def given_back(self, lease: Lease, calls: list[Call]) -> None:
        """Queue tasks again that a worker has given back."""
        lease.reclaiming = False
        lease.stalled = bool(lease.connection.calls)
        self._queue_again(calls)
        self.feed()
        if not lease.connection.calls:
            self._next(lease, monotonic())

    def lost(self, lease: Lease, cause: Cause) -> None:
        """Queue or fail the tasks of a worker that has died."""
        # POINT lease lost
        lease.lost = True
        connection = lease.connection
        connection.read_rest()
        self.leases.pop(lease.lease_id, None)
        calls = [call for call in connection.calls.values() if call.source is self]
        for call in calls:
            del connection.calls[call.task_id]
        if cause.kind == m.CAUSE_REFUSED:  # another worker of this environment would do no better
            self.refuse(cause.text, calls)
            return
        if calls and not self.single:
            self.cautious = 64
        again = []
        for index, call in enumerate(calls):
            if index == 0 and (self.single or cause.kind != m.CAUSE_EXIT):
                if cause.kind == m.CAUSE_MEMORY and call.retries != CANCELLED:
                    if not (self.demand["retriable"] and self.pools.memory.take(call)):
                        call.fail(worker_error(call.name, cause), lease.process)
                    continue
                if call.retries == 0:  # a cancelled one gets its error below
                    call.fail(worker_error(call.name, cause), lease.process)
                    continue
                call.use_retry()
            again.append(call)
        self._queue_again(again)
        self.feed()

    def could_not_connect(self, process: str) -> None:
        """Ask for another worker in the place of one that cannot be connected to: it may have died since. But not for ever."""
        self.unreachable += 1
        if self.unreachable == MOST_UNREACHABLE:
            self.unreachable = 0
            what = f"Of {MOST_UNREACHABLE} workers in a row that the node has granted none could be connected to"
            self.fail(RaySystemError(f"{what}, the last of them process {process}. The session's directory is {self.client.session_dir}."))

    def refuse(self, text: str, pushed: Sequence[Call] = ()) -> None:
        """Fail tasks that no worker can run."""
        self.fail(refused_error(text), pushed)

    def fail(self, error: BaseException, pushed: Sequence[Call] = ()) -> None:
        """Fail all tasks that have not been pushed, and these, with this error."""
        queue, self.queue = self.queue, deque()
        for call in (*pushed, *queue):
            call.fail(error)

    def _queue_again(self, calls: list[Call]) -> None:
        for call in reversed(calls):
            if call.retries == CANCELLED:
                call.cancel()
            else:
                self.queue.appendleft(call)

    def attempt_failed(self, call: Call) -> None:
        """Queue a task again: its function raised an error that is retried."""
        call.use_retry()
        lease: Lease = call.lease
        self._queue_again([call])
        self._next(lease, monotonic())
        self.feed()

    def cancel(self, call: Call) -> bool:
        """Take a task that has not been pushed out of the queue."""
        try:
            self.queue.remove(call)
        except ValueError:
            return self.pools.memory.cancel(call)
        return True

    def connection_of(self, call: Call) -> Connection | None:
        """The connection to the worker that a task was pushed to."""
        return None if call.lease is None else call.lease.connection


class LeasePools:
    """All pools of a client, and its messages to and from the node about leases."""

    def __init__(self, client: Owner, borrowing: Borrowing, arguments: Arguments, tell_refusal: Callable[[str], None]) -> None:
        """`tell_refusal` is called with the node's text when tasks can never be scheduled."""
        self.client = client
        self.borrowing = borrowing
        self.arguments = arguments
        self._tell_refusal = tell_refusal
        self.memory = MemoryRetries(client)
        #: A pool is there as long as a function's plan, a task, a request or a lease needs it: every placement group has pools of its own.
        self._pools: weakref.WeakValueDictionary[Any, Pool] = weakref.WeakValueDictionary()
        self._requests: dict[int, Pool] = {}
        self._leases: dict[int, Lease] = {}
        self._numbers = 0
        self._watched: set[Pool] = set()
        #: Pools with more than one task in a pipeline, when last looked at.
        self._pipelined: set[Pool] = set()

    def pool(self, key: Any, demand: dict[str, Any], single: bool) -> Pool:
        """The pool of a scheduling class."""
        pool = self._pools.get(key)
        if pool is None:
            pool = self._pools[key] = Pool(self, key, demand, single)
        return pool

    def request(self, pool: Pool) -> None:
        self._numbers += 1
        self._requests[self._numbers] = pool
        pool.requests.add(self._numbers)
        # A request is named by the first task that waits now, and not by the first that ever did.
        demand, label = pool.demand, f"task {pool.queue[0].name}"
        self.client.node.send((m.LEASE_REQUEST, self._numbers, demand if demand.get("label") == label else {**demand, "label": label}))

    def queued(self) -> Iterator[Call]:
        """Every task that has not been pushed."""
        for pool in self._pools.values():
            yield from pool.queue
        yield from self.memory.resting

    def cancelled(self, number: int) -> None:
        self._requests.pop(number, None)

    def forget(self, lease_id: int) -> None:
        self._leases.pop(lease_id, None)

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
        pool = self._requests.pop(number, None)
        connection = None
        if pool is not None:
            pool.requests.discard(number)
            try:
                connection = self.client.try_peer(process)
            except OSError as error:
                pool.fail(error)
        if pool is None or connection is None or not pool.queue:
            node.send((m.LEASE_RETURN, lease_id))
            if pool is not None:
                if connection is None:
                    pool.could_not_connect(process)
                pool.feed()
            return
        pool.unreachable = 0
        lease = Lease(pool, lease_id, process, connection)
        self._leases[lease_id] = pool.leases[lease_id] = lease
        connection.facts["lease"] = lease
        options = pool.demand.get("options")
        if cpus or accelerators:
            options = {**(options or {}), "cpus": cpus, "accelerators": accelerators}
        connection.post((m.LEASED, lease_id, resources, gpus, options))
        pool.feed()
        if not connection.calls:
            pool.note_idle(lease, monotonic())
        connection.flush()

    def on_refused(self, _node: Connection, number: int, text: str) -> None:
        pool = self._requests.pop(number, None)
        if pool is None:
            return
        pool.requests.discard(number)
        self._tell_refusal(text)
        pool.refuse(text)

    def on_lost(self, _node: Connection, lease_id: int, cause: tuple[Any, ...]) -> None:
        lease = self._leases.pop(lease_id, None)
        if lease is not None:
            lease.pool.lost(lease, Cause(*cause))

    def over(self, connection: Connection) -> list[int]:
        """The leases of the worker at the other end of a connection."""
        return [lease_id for lease_id, lease in self._leases.items() if lease.connection is connection]

    def on_recall(self, _node: Connection, lease_id: int) -> None:
        lease = self._leases.get(lease_id)
        if lease is None or lease.wanted:
            return
        lease.wanted = True
        pool = lease.pool
        if not lease.connection.calls:
            pool.give_back(lease)
            return
        left = lease.since + SLICE_SECONDS - monotonic()
        if left > 0 and pool.queue and pool.pace is not None and pool.pace < left:
            self.client.reactor.call_later(left, lambda: self._slice_over(lease))
        else:
            self._recall(lease)

    def _slice_over(self, lease: Lease) -> None:
        with self.client.lock:
            if self._leases.get(lease.lease_id) is lease:
                self._recall(lease)

    def _recall(self, lease: Lease) -> None:
        """Push no more to this worker; tasks that have not begun there go to others."""
        lease.recalled = True
        calls = lease.connection.calls
        if not calls:
            lease.pool.give_back(lease)
        elif len(calls) > 1 and not lease.reclaiming:
            lease.reclaiming = True
            lease.connection.send((m.RECLAIM, len(calls) - 1))

    def on_given_back(self, connection: Connection, task_ids: list[bytes]) -> None:
        # POINT tasks given back
        lease = connection.facts.get("lease")
        calls = [call for call in (connection.calls.pop(task_id, None) for task_id in task_ids) if call is not None]
        if lease is not None:
            try:
                lease.pool.given_back(lease, calls)
            except Exception as error:
                for call in calls:
                    lost_call(call, "GIVEN_BACK", error)
                raise

    def unread(self, connection: Connection) -> None:
        """Return the lease of a worker that lives and has read no message of a connection, and push its tasks elsewhere."""
        lease = connection.facts.get("lease")
        if lease is not None and not lease.lost:
            lease.pool.give_back(lease)
            lease.pool.feed()

    def broken(self, connection: Connection, error: Exception) -> None:
        """Have the node end a worker whose connection broke although it lives."""
        lease = connection.facts.get("lease")
        if lease is not None and not lease.lost:
            self.forget(lease.lease_id)
            if not self.client.node.closed:  # the worker may not know of the lease
                self.client.node.send((m.LEASE_BREAK, lease.lease_id, str(error)))
            lease.pool.lost(lease, Cause(m.CAUSE_CRASH, str(error), connection.pid))

    def watch_idle(self, pool: Pool) -> None:
        """Give idle leases of the pool back in a while."""
        if pool not in self._watched:
            self._watched.add(pool)
            self.client.reactor.call_later(KEEP_SECONDS, lambda: self._end_idle(pool))

    def watch_pipelines(self, pool: Pool) -> None:
        """Look in a while whether the tasks that the pool has pushed behind others have moved."""
        if pool not in self._pipelined:
            self._pipelined.add(pool)
            self.client.reactor.call_later(STUCK_SECONDS, lambda: self._look_at(pool))

    def _look_at(self, pool: Pool) -> None:
        with self.client.lock:
            self._pipelined.discard(pool)
            if pool.take_back_stuck(monotonic()):
                self.watch_pipelines(pool)

    def _end_idle(self, pool: Pool) -> None:
        with self.client.lock:
            self._watched.discard(pool)
            now = monotonic()
            again = False
            for lease in list(pool.leases.values()):
                if lease.connection.calls:
                    continue
                if now - lease.idle_since >= KEEP_SECONDS:
                    pool.give_back(lease)
                else:
                    again = True
            if again:
                self.watch_idle(pool)

    def give_back_idle(self) -> None:
        """Return every idle lease at once (before free resources are listed), and ask for none where no task waits."""
        for pool in self._pools.values():
            if not pool.queue:
                pool.cancel_requests()
            for lease in list(pool.leases.values()):
                if not lease.connection.calls:
                    pool.give_back(lease)

    def is_idle(self) -> bool:
        """Whether no task of this process is queued or running."""
        if self.memory.resting:
            return False
        return all(not pool.queue and all(not lease.connection.calls for lease in pool.leases.values()) for pool in self._pools.values())

    def fail_all(self, error: BaseException) -> None:
        """Fail all tasks: the node is lost."""
        for pool in self._pools.values():
            calls = list(pool.queue)
            for lease in pool.leases.values():
                calls += lease.connection.calls.values()
                lease.connection.calls.clear()
            pool.queue.clear()
            pool.leases.clear()
            for call in calls:
                call.fail(error)
        for call in self.memory.resting:
            call.fail(error)
        self.memory.resting.clear()
        self._leases.clear()
        self._requests.clear()
