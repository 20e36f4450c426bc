"""The scheduler: events in, instructions out. Nothing but `Scheduler.handle` changes the records.

The life of a claimant::

    enqueue ──resources free──▶ _seat ──idle worker──────────────────▶ _assign ──returned, worker dead──▶ _vacate
                                  └─ none: SpawnWorker, wait, joined ──▶
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mray._common.accelerator_kinds import GpuId, named_gpus
from mray._common.amounts import readable
from mray._common.causes import Cause
from mray._common.event_log import EventLog
from mray._common.messages import (
    ACTOR_START,
    ANSWER,
    CAUSE_CRASH,
    CAUSE_EXIT,
    CAUSE_MEMORY,
    CAUSE_OWNER,
    CAUSE_REFUSED,
    EXIT,
    LEASE_GRANT,
    LEASE_RECALL,
    LEASE_REFUSED,
    NO_PROCESS,
    WORKER_GONE,
)
from mray._decide.scheduler import events
from mray._decide.scheduler.actors import Actors
from mray._decide.scheduler.affinity import CpuLoads, Topology
from mray._decide.scheduler.claimant_queue import DemandQueue
from mray._decide.scheduler.instructions import AwaitPlace, Instruction, KillWorker, SpawnWorker, Tell
from mray._decide.scheduler.lifetime_roots import LifetimeRoots
from mray._decide.scheduler.placement import GroupRecord, Groups
from mray._decide.scheduler.policy import FREE_LEASES, PRIVATE_VARIABLES, idle_limit, prestart_count
from mray._decide.scheduler.records import (
    BUSY,
    IDLE,
    LEAVING,
    SHARED,
    STARTING,
    ActorRecord,
    Claimant,
    GrantedLease,
    Member,
    WorkerRecord,
    environment_of,
)
from mray._decide.scheduler.resources import CPU, FREE, GPU, UNIT, Holding, ResourcePool, describe, to_quantities
from mray._decide.scheduler.root_names import Environment, job_of, root_of, stamped
from mray._decide.scheduler.workers import WorkerPool

_RESET = "the session has since been reset"
_RESET_ACTOR = "The actor is dead because its session has since been reset."
_RESET_ROLE = "the driver, before its session was reset,"
_FULL = "The node specified via NodeAffinitySchedulingStrategy is full, and _fail_on_unavailable=True was specified"


class Scheduler:
    def __init__(
        self,
        resources: Mapping[str, float],
        gpu_ids: Iterable[GpuId],
        default_environment: Environment,
        new_process: Callable[[], str],
        topology: Callable[[], Topology] = lambda: Topology([(0,)], {}),
        *,
        mps: bool = False,
    ) -> None:
        """`mps`: work with a fraction of a GPU makes its process a client of MPS."""
        self.cpu_loads = CpuLoads(topology)
        self.pool = ResourcePool({**resources, FREE: FREE_LEASES}, gpu_ids, lambda one, other: self.cpu_loads.topology.apart(one, other))
        self.queue = DemandQueue()
        self.workers = WorkerPool(new_process)
        self.actors = Actors(self)
        self.groups = Groups(self)
        #: Joined processes by name.
        self.members: dict[str, Member] = {}
        self.roots = LifetimeRoots(self.workers, self.end_worker)
        self.leases: dict[int, GrantedLease] = {}
        self.default_environment = default_environment
        self._mps = mps
        self._lease_number = 0
        self._assignments = 0
        #: Leases that hold a resource and were not recalled yet, by resource.
        self._recallable: dict[str, dict[int, GrantedLease]] = {}
        self._cpus = resources.get(CPU, 0)
        self._out: list[Instruction] = []
        self.event_log = EventLog("the scheduler")
        self._place_needed = False
        self._dispatch: dict[type[events.Event], Callable[[Any], None]] = {
            events.MemberJoined: self._member_joined,
            events.MemberDied: self._member_died,
            events.DriverReset: self._driver_reset,
            events.WorkerLeft: self._worker_left,
            events.MemoryRanLow: self._memory_ran_low,
            events.PrestartAllowed: self._prestart,
            events.LeaseRequested: self._lease_requested,
            events.LeaseCancelled: self._lease_cancelled,
            events.LeaseReturned: self._lease_returned,
            events.LeaseBroken: self._lease_broken,
            events.TaskBlocked: self._task_blocked,
            events.TaskUnblocked: self._task_unblocked,
            events.ActorRequested: self._asked_by_member(self.actors.create),
            events.ActorWatched: self._asked_by_member(self.actors.watch),
            events.WatchExpired: lambda event: self.actors.watch_expired(*event),
            events.PlaceExpired: self._place_expired,
            events.ActorRested: lambda event: self.actors.rested(*event),
            events.HandlesHeld: self._asked_by_member(self.actors.hold),
            events.HandlesDropped: self._asked_by_member(self.actors.drop),
            events.ActorKilled: self._actor_killed,
            events.ActorConstructed: lambda event: self.actors.constructed(*event),
            events.ActorFailed: lambda event: self.actors.failed(*event),
            events.GroupRequested: self._asked_by_member(self.groups.create),
            events.GroupAwaited: self._asked_by_member(self.groups.wait),
            events.GroupDismissed: self._group_dismissed,
            events.NameLookedUp: lambda event: self.actors.look_up(*event),
            events.Queried: self._queried,
        }

    def handle(self, event: events.Event) -> list[Instruction]:
        out = self._out = []
        self.event_log.note(event)
        self._dispatch[type(event)](event)
        if self._place_needed:
            self._place()
        return out

    # ------------------------------------------------------------------------------------ members
    def _asked_by_member(self, answer: Callable[..., None]) -> Callable[[Any], None]:
        """Replaces the process name that an event begins with by its member record; ignores the event if the process has exited."""

        def answer_event(event: events.Event) -> None:
            process, *asked = event
            if process in self.members:
                answer(self.members[process], *asked)

        return answer_event

    def _member_joined(self, event: events.MemberJoined) -> None:
        worker = self.workers.workers.get(event.process)
        if worker is None:
            self.members[event.process] = Member(event.process, event.pid, event.job)
            self.roots.begin(event.job)
            return
        self.members[event.process] = Member(event.process, event.pid, root_of(worker.environment))
        self.workers.joined(worker, event.pid)
        if worker.intended is None:
            self._settle(worker)
        else:  # its end was ordered before it had a process
            worker.state = LEAVING
            self._out.append(KillWorker(worker.process))

    def _member_died(self, event: events.MemberDied) -> None:
        member = self.members.pop(event.process, None)
        worker = self.workers.workers.get(event.process)
        cause = event.cause
        if worker is not None and worker.intended is not None:
            kind, text = worker.intended
            cause = Cause(kind, text, cause.pid, cause.status, cause.payload if kind == CAUSE_CRASH else None)
        if member is not None:
            for lease in list(member.leases.values()):
                self._abandon(lease)
            self.actors.member_died(member, event.cause, event.role)
            self.groups.member_died(event.process)
            gone = (WORKER_GONE, event.process, event.role, cause.packed())
            for process in self.members:
                made = event.made.get(process)
                self.tell(process, (*gone, made) if made else gone)
        if worker is not None:
            self._worker_died(worker, cause)
        elif member is not None:
            self.roots.end(member.root, at_once=True)

    def _worker_died(self, worker: WorkerRecord, cause: Cause) -> None:
        claimant = worker.claimant
        hopeless = self.workers.died(worker, for_good=cause.kind == CAUSE_REFUSED)
        if claimant is not None:
            self._vacate(claimant)
            if isinstance(claimant, GrantedLease):
                self._forget(claimant)
            elif isinstance(claimant, ActorRecord):
                self.actors.worker_died(claimant, cause, worker.may_restart)
        if hopeless:
            self._refuse_waiting(worker.environment, cause)
        self._start_missing(worker.environment)
        self.roots.worker_died(worker)

    def _refuse_waiting(self, environment: Environment, cause: Cause) -> None:
        # Values may be secrets.
        names = [name for name, _value in environment if not name.startswith(PRIVATE_VARIABLES)]
        with_what = f" with the env_vars {names}" if names else ""
        text = f"{NO_PROCESS}{with_what}: it {cause.text or cause.how()} as it started"
        if cause.kind == CAUSE_REFUSED:
            text = f"{NO_PROCESS}: {cause.text}"
        if cause.payload:
            text += f".{cause.last_output()}"
        for claimant in self.workers.give_up(environment):
            self._vacate(claimant)
            if isinstance(claimant, GrantedLease):
                self._refuse(claimant, f"{claimant.label}: {text}")
            elif isinstance(claimant, ActorRecord):
                self.actors.bury(claimant, Cause(CAUSE_REFUSED, f"{claimant.label}: {text}", cause.pid, cause.status))

    def _worker_left(self, event: events.WorkerLeft) -> None:
        """The worker's CPUs are free immediately, the rest once it is dead or its lease returned."""
        worker = self.workers.workers.get(event.process)
        if worker is None:
            return
        worker.intended = worker.intended or (event.kind, event.text)
        self.workers.withdraw(worker)
        worker.state = LEAVING
        claimant = worker.claimant
        if claimant is not None and claimant.holding is not None:
            self.given_back(claimant.holding.pool.lend(claimant.holding))
        # It may stay until other processes release what it owns; no claimant is to wait for it.
        if isinstance(claimant, GrantedLease):
            self._recall(claimant)
        elif isinstance(claimant, ActorRecord):
            self.actors.left(claimant, *worker.intended)

    def _memory_ran_low(self, event: events.MemoryRanLow) -> None:
        for process in event.processes:
            worker = self.workers.workers.get(process)
            if worker is None:
                continue
            # An actor that was asked to leave has not left for that reason.
            worker.intended = None
            if worker.claimant is not None:
                self.kill(worker.claimant, CAUSE_MEMORY, event.text, may_restart=True)
            else:
                self.end_worker(worker, CAUSE_MEMORY, event.text)

    def _prestart(self, event: events.PrestartAllowed) -> None:
        self.roots.begin(event.job)
        environment = stamped(environment_of(event.variables, self.default_environment), event.job)
        there = sum(worker.state != LEAVING for worker in self.workers.of(event.job))
        for _ in range(prestart_count(self._cpus) - there):
            self._spawn(environment)

    # ------------------------------------------------------------------------------------ resets
    def _driver_reset(self, event: events.DriverReset) -> None:
        """End everything that the driver, which will join again under another name, has asked for, through whatever process.

        A worker survives if it does nothing, leases no other, and owns no actor and no object, so that tests that share a session find
        warm processes.
        """
        member = self.members.pop(event.process)
        for actor in list(self.actors.records.values()):
            self.actors.evict(actor, CAUSE_OWNER, _RESET_ACTOR)
        for group in list(self.groups.records):
            self.groups.remove(group)
        for lease in list(self.leases.values()):
            self._abandon(lease)
        member.owned.clear()  # they end already, for another reason
        self.actors.member_died(member)
        self.groups.member_died(event.process)
        cause = Cause(CAUSE_OWNER, _RESET, member.pid).packed()
        for process in self.members:
            self.tell(process, (WORKER_GONE, event.process, _RESET_ROLE, cause))
        for worker in list(self.workers.workers.values()):
            if not self._leaves_no_trace(worker, event.owners):
                self.end_worker(worker, CAUSE_OWNER, _RESET)

    def _leaves_no_trace(self, worker: WorkerRecord, owners: frozenset[str]) -> bool:
        if worker.state == STARTING:
            return worker.intended is None
        return worker.state == IDLE and self._may_go(worker) and worker.process not in owners

    def leaving(self) -> set[str]:
        return {worker.process for worker in self.workers.workers.values() if worker.intended is not None}

    # ------------------------------------------------------------------------------------ leases
    def _lease_requested(self, event: events.LeaseRequested) -> None:
        member = self.members.get(event.process)
        if member is None:
            return
        self._lease_number += 1
        site = self.groups.site(event.demand.get("group"))
        lease = GrantedLease(self._lease_number, member, event.request, event.demand, self.default_environment, site)
        shortage = self.shortage(lease)
        if shortage is not None:
            self.tell(event.process, (LEASE_REFUSED, event.request, shortage))
            return
        self.leases[lease.id] = member.leases[lease.id] = member.requests[lease.request] = lease
        self.enqueue(lease)

    def _lease_cancelled(self, event: events.LeaseCancelled) -> None:
        member = self.members.get(event.process)
        if member is not None and event.request in member.requests:
            lease = member.requests[event.request]
            self.withdraw(lease)
            self._forget(lease)
        elif member is not None:
            # The grant is in flight to a client that will not use it: an event before its refusal must not end the worker too.
            for granted in [lease for lease in member.leases.values() if lease.request == event.request]:
                self._end_lease(granted)

    def _lease_returned(self, event: events.LeaseReturned) -> None:
        lease = self.leases.get(event.lease)
        if lease is None or lease.client.process != event.process:
            return  # its worker died meanwhile, or its request was cancelled
        self._end_lease(lease)

    def _lease_broken(self, event: events.LeaseBroken) -> None:
        lease = self.leases.get(event.lease)
        if lease is not None and lease.client.process == event.process and lease.worker is not None:
            self.kill(lease, CAUSE_CRASH, event.text)
            self._forget(lease)

    def _end_lease(self, lease: GrantedLease) -> None:
        self._forget(lease)
        worker = lease.worker
        self._vacate(lease)
        if worker is not None:
            self._settle(worker)

    def _refuse(self, lease: GrantedLease, text: str) -> None:
        self._forget(lease)
        self.tell(lease.client.process, (LEASE_REFUSED, lease.request, text))

    def _abandon(self, lease: GrantedLease) -> None:
        """The client is dead: the results of the leased worker have no reader."""
        if lease.worker is None:
            self.withdraw(lease)
        else:
            self.kill(lease, CAUSE_OWNER, f"the process (pid {lease.client.pid}) that submitted its task has died")
        self._forget(lease)

    def _forget(self, lease: GrantedLease) -> None:
        lease.over = True
        self.leases.pop(lease.id, None)
        lease.client.leases.pop(lease.id, None)
        lease.client.requests.pop(lease.request, None)
        self._no_longer_recallable(lease)

    def _no_longer_recallable(self, lease: GrantedLease) -> None:
        for name in lease.sources:
            recallable = self._recallable.get(name)
            if recallable is not None:
                recallable.pop(lease.id, None)
                if not recallable:
                    del self._recallable[name]

    def _recall(self, lease: GrantedLease) -> None:
        self._no_longer_recallable(lease)
        self.tell(lease.client.process, (LEASE_RECALL, lease.id))

    def _task_blocked(self, event: events.TaskBlocked) -> None:
        worker = self.workers.workers.get(event.process)
        if worker is not None and worker.state == LEAVING and isinstance(worker.claimant, GrantedLease):
            self._end_lease(worker.claimant)  # it stays while others need what it owns
            return
        holding = self._lease_holding(event.process)
        if holding is not None:
            self.given_back(holding.pool.lend(holding))

    def _task_unblocked(self, event: events.TaskUnblocked) -> None:
        holding = self._lease_holding(event.process)
        if holding is not None:
            holding.pool.take_back(holding)

    def _lease_holding(self, process: str) -> Holding | None:
        """Resources of the task in this worker; actors retain theirs while they wait."""
        worker = self.workers.workers.get(process)
        if worker is None or worker.state == LEAVING or not isinstance(worker.claimant, GrantedLease):
            return None
        return worker.claimant.holding

    # ------------------------------------------------------------------------------------ actors
    def _actor_killed(self, event: events.ActorKilled) -> None:
        self.actors.kill(event.actor, event.no_restart)
        if event.request:
            self.tell(event.process, (ANSWER, event.request, True, None))

    # ------------------------------------------------------------------------------------ placement groups
    def _group_dismissed(self, event: events.GroupDismissed) -> None:
        self.groups.remove(event.group)
        self.tell(event.process, (ANSWER, event.request, True, None))

    def claimants(self) -> list[Claimant]:
        return [*self.leases.values(), *self.actors.records.values()]

    def root_of(self, process: str) -> tuple[str, bytes | None]:
        """The owner with which the actors and groups of a process end: the actor in it, or the driver that its task comes from."""
        seen = set()
        while process not in seen:
            seen.add(process)
            worker = self.workers.workers.get(process)
            if worker is None:
                return process, None
            if isinstance(worker.claimant, ActorRecord):
                return process, worker.claimant.id
            if isinstance(worker.claimant, GrantedLease):
                process = worker.claimant.client.process
        # The task behind this request is over: its worker is idle, or now works for another member.
        root = self.members[process].root
        _job, _slash, actor = root.partition("/")
        if actor:
            return process, bytes.fromhex(actor)
        drivers = (name for name, member in self.members.items() if member.root == root and name not in self.workers.workers)
        return next(drivers, process), None

    def evict(self, claimant: Claimant, kind: str, text: str) -> None:
        if isinstance(claimant, ActorRecord):
            self.actors.evict(claimant, kind, text)
        elif claimant.worker is not None:
            self.kill(claimant, kind, text)
        elif isinstance(claimant, GrantedLease):
            self.withdraw(claimant)
            self._refuse(claimant, text)

    # ------------------------------------------------------------------------------------ what actors and placement groups ask for
    def act(self, instruction: Instruction) -> None:
        self._out.append(instruction)

    def tell(self, process: str, message: tuple[Any, ...]) -> None:
        self._out.append(Tell(process, message))

    def shortage(self, claimant: Claimant) -> str | None:
        """Why this machine can never satisfy the claimant, or None."""
        wanted = claimant.needs
        if claimant.site is not None:
            shortage = claimant.site.shortage(wanted)
            return f"{claimant.label}: {shortage}" if shortage is not None else None
        shortage = self.pool.shortage(wanted)
        if shortage is None:
            return None
        there = {name: units for name, units in self.pool.total.items() if name != FREE}
        reason = shortage if shortage.startswith("more") else f"this machine has {describe(there)} in all"
        return f"{claimant.label} asks for {describe(wanted)}, which can never be given: {reason}"

    def enqueue(self, claimant: Claimant) -> None:
        self.queue.push(claimant)
        self._place_needed = True
        if claimant.fail_fast:
            self._out.append(AwaitPlace(claimant.id if isinstance(claimant, (GrantedLease, ActorRecord)) else b""))

    def withdraw(self, claimant: Claimant) -> None:
        assert claimant.worker is None
        if claimant.over:
            return
        claimant.over = True
        if claimant.holding is None:
            self.queue.drop(claimant)
        else:
            self.workers.drop(claimant)
            self._vacate(claimant)

    def kill(self, claimant: Claimant, kind: str, text: str, *, may_restart: bool = False) -> None:
        """Kill a worker; the claimant is notified when it is dead."""
        worker = claimant.worker
        assert worker is not None
        if worker.intended is None or not may_restart:
            worker.intended = (kind, text)
            worker.may_restart = may_restart
        worker.state = LEAVING
        self._out.append(KillWorker(worker.process))

    def end_worker(self, worker: WorkerRecord, kind: str, text: str) -> None:
        self.workers.withdraw(worker)
        worker.intended = worker.intended or (kind, text)
        worker.may_restart = False
        if worker.state != STARTING:  # a starting one may have no process yet, and is ended when it joins
            worker.state = LEAVING
        self._out.append(KillWorker(worker.process))

    # ------------------------------------------------------------------------------------ placing
    def _place(self) -> None:
        while (claimant := self.queue.next(self.pool)) is not None:
            site = claimant.site
            claimant.holding = self.pool.take(claimant.amounts, self._companions(claimant)) if site is None else site.take(claimant)
            if isinstance(claimant, GroupRecord):
                self.groups.created(claimant)
            else:
                self._seat(claimant)
        for name in [name for name in self.queue.lacked() if name in self._recallable]:
            for lease in list(self._recallable.get(name, {}).values()):
                if self.queue.others_want(name, lease):
                    self._recall(lease)
        self._place_needed = False

    def _companions(self, claimant: Claimant) -> list[int]:
        """The GPUs of actors of the same job, with which a new actor will likely communicate."""
        if not isinstance(claimant, ActorRecord) or not claimant.amounts.get(GPU):
            return []
        job = job_of(claimant.root)
        return [
            index
            for actor in self.actors.records.values()
            if actor.holding is not None and actor.holding.pool is self.pool and job_of(actor.root) == job
            for index, _units in actor.holding.devices.get(GPU, ())
        ]

    def _place_expired(self, event: events.PlaceExpired) -> None:
        known = self.leases if isinstance(event.claimant, int) else self.actors.records
        claimant: Claimant | None = known.get(event.claimant)  # type: ignore[arg-type]
        if claimant is None or claimant.over or claimant.holding is not None or claimant.worker is not None:
            return
        lacking = self.pool.lacking(claimant.needs_free) or ""
        free = readable(lacking, self.pool.available().get(lacking, 0))
        there = f"it asks for {describe(claimant.needs_free)}, and of {lacking!r} only {free} is free"
        self.evict(claimant, CAUSE_REFUSED, f"{claimant.label}: {_FULL}: {there}.")

    def _seat(self, claimant: Claimant) -> None:
        """Find a worker for a claimant that has its resources."""
        worker = self.workers.take(claimant, self._sees(claimant), self._suits)
        if worker is not None:
            self._assign(worker, claimant)
            return
        for rival in self.workers.rivals(self._gpus_of(claimant)):
            self._dismiss(rival)
        self.workers.wait(claimant)
        self._start_missing(claimant.environment)

    def _gpus_of(self, claimant: Claimant) -> tuple[GpuId, ...]:
        assert claimant.holding is not None
        return claimant.holding.pool.ids_of(claimant.holding)

    def _sees(self, claimant: Claimant) -> tuple[GpuId, ...]:
        assert claimant.holding is not None
        has_part = self._mps and any(units < UNIT for _index, units in claimant.holding.devices.get(GPU, ()))
        return (*self._gpus_of(claimant), SHARED) if has_part else self._gpus_of(claimant)

    def _start_missing(self, environment: Environment) -> None:
        for _ in range(self.workers.missing(environment)):
            self._spawn(environment)

    def _spawn(self, environment: Environment) -> None:
        worker = self.workers.start(environment)
        self._out.append(SpawnWorker(worker.process, environment))

    def _settle(self, worker: WorkerRecord) -> None:
        if worker.state == LEAVING:
            worker.claimant = None
            return
        if self.roots.ended_before(worker):
            return
        claimant = self.workers.next_claimant(worker, self._sees, self._suits)
        if claimant is not None:
            self._assign(worker, claimant)
            return
        self.workers.rest(worker)
        limit = idle_limit(self._cpus)
        if self.workers.idle_count > limit:  # the limit is per driver
            limit *= max(1, self.roots.jobs)
        for surplus in self.workers.surplus(limit, self._may_go):
            self._dismiss(surplus)

    def _suits(self, worker: WorkerRecord, claimant: Claimant) -> bool:
        """An actor is not placed in a process on whose life other actors depend, since its end is the process's end."""
        return not (isinstance(claimant, ActorRecord) and self.members[worker.process].owned)

    def _may_go(self, worker: WorkerRecord) -> bool:
        member = self.members[worker.process]
        return not member.owned and not member.leases

    def _dismiss(self, worker: WorkerRecord) -> None:
        worker.state = LEAVING
        worker.intended = (CAUSE_EXIT, "the worker had nothing to do")
        self.tell(worker.process, (EXIT, *worker.intended))

    def _assign(self, worker: WorkerRecord, claimant: Claimant) -> None:
        assert worker.state == BUSY
        assert claimant.holding is not None
        worker.claimant = claimant
        claimant.worker = worker
        self._assignments += 1
        claimant.began = self._assignments
        gpu_ids = list(self._gpus_of(claimant))
        accelerators = claimant.holding.pool.accelerators_of(claimant.holding)
        if claimant.affinity is not None:
            claimant.cpus = self.cpu_loads.take(claimant.affinity, gpu_ids, claimant.amounts.get(CPU, 0))
        listed = dict(claimant.environment).get("CUDA_VISIBLE_DEVICES") if gpu_ids else None
        if listed is not None:
            gpu_ids = named_gpus([self.pool.devices[GPU].ids.index(gpu) for gpu in gpu_ids], listed)
        if isinstance(claimant, GrantedLease):
            resources = to_quantities({name: units for name, units in claimant.amounts.items() if name != FREE})
            pinned: tuple[Any, ...] = (list(claimant.cpus),) if claimant.cpus else ()
            if accelerators:
                pinned = (list(claimant.cpus), accelerators)
            self.tell(claimant.client.process, (LEASE_GRANT, claimant.request, claimant.id, worker.process, resources, gpu_ids, *pinned))
            claimant.client.requests.pop(claimant.request, None)
            for name in claimant.sources:
                self._recallable.setdefault(name, {})[claimant.id] = claimant
            self._place_needed = self._place_needed or bool(self.queue.lacked())
        elif isinstance(claimant, ActorRecord):
            worker.actor = claimant
            has = {"gpu_ids": gpu_ids, "accelerators": accelerators, "cpus": list(claimant.cpus)}
            spec = {**claimant.spec, **has, "restarted": claimant.incarnation > 0}
            self.tell(worker.process, (ACTOR_START, claimant.id, spec, claimant.incarnation))

    def _vacate(self, claimant: Claimant) -> None:
        if claimant.cpus:
            self.cpu_loads.give(claimant.cpus)
            claimant.cpus = ()
        if claimant.holding is not None:
            names = claimant.holding.pool.give(claimant.holding)
            claimant.holding = None
            self.given_back(names)
        if claimant.worker is not None:
            claimant.worker.claimant = None
            claimant.worker = None

    def given_back(self, names: tuple[str, ...]) -> None:
        self.queue.given_back(names)
        self._place_needed = True

    # ------------------------------------------------------------------------------------ listings
    def _queried(self, event: events.Queried) -> None:
        listing = _LISTINGS.get(event.what)
        if listing is None:
            self.tell(event.process, (ANSWER, event.request, False, f"the node has no listing {event.what!r}"))
        else:
            self.tell(event.process, (ANSWER, event.request, True, listing(self, *event.arguments)))

    def waits(self) -> list[str]:
        """Sentences about claimants that wait for resources, with the holders of these."""
        from mray._decide.scheduler.waits import Wait, sentence  # noqa: PLC0415  (not on the way to the first answer of a session)

        return [sentence(self, wait) for wait in map(Wait._make, self.queue.asleep()) if wait.claimants]

    # ------------------------------------------------------------------------------------ for tests and errors
    def validate(self) -> None:
        self.queue.validate()
        self.workers.validate()
        self.actors.validate()
        claimants: list[Claimant] = [*self.leases.values(), *self.actors.records.values()]
        claimants += [worker.claimant for worker in self.workers.workers.values() if worker.claimant and worker.claimant not in claimants]
        self.groups.validate(claimants)
        holdings = [*self.groups.reserved(), *(claimant.holding for claimant in claimants if claimant.holding is not None)]
        self.pool.validate(holding for holding in holdings if holding.pool is self.pool)
        queued = set(map(id, self.queue.waiting()))
        waiting = set(map(id, self.workers.waiting()))
        for claimant in claimants:
            if claimant.worker is not None:
                assert claimant.worker.claimant is claimant
                assert claimant.worker.process in self.workers.workers
                assert claimant.worker.state != STARTING
            placed = not (isinstance(claimant, ActorRecord) and (claimant.announced or claimant.resting))
            assert (id(claimant) in queued) + (id(claimant) in waiting) + (claimant.worker is not None) == placed, claimant.label
        for lease in self.leases.values():
            assert self.members[lease.client.process] is lease.client
            assert lease.client.leases[lease.id] is lease
            assert (lease.request in lease.client.requests) == (lease.worker is None)


#: Listings by name: builtin values, built on request.
_LISTINGS: dict[str, Callable[..., Any]] = {
    "cluster_resources": lambda scheduler: {**scheduler.pool.quantities(), **scheduler.groups.totals()},
    "available_resources": lambda scheduler: {**scheduler.pool.available(), **scheduler.groups.free()},
    "placement_groups": lambda scheduler: scheduler.groups.listing(),
    "named_placement_group": lambda scheduler, name, namespace: scheduler.groups.find(name, namespace),
    "named_actors": lambda scheduler, all_namespaces, namespace: scheduler.actors.named(all_namespaces, namespace),
    "actors": lambda scheduler: scheduler.actors.listing(),
    "waits": Scheduler.waits,
}
