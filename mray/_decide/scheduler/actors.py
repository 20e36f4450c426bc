"""Actors: names, owners, handles, restarts, and causes of death.

    pending ──placed, constructed──▶ alive ──worker died──▶ dead
                                     │  ▲                    ▲
                       worker died,  ▼  │ constructed again  │ no restarts left, killed, failed
                       restarts left restarting ─────────────┘

An actor whose process dies in the constructor rests before it is restarted.
"""

from __future__ import annotations

from typing import Any, Protocol

from mray._common.causes import REASONS, Cause
from mray._common.history import History
from mray._common.messages import (
    ACTOR_STATE,
    ALIVE,
    ANSWER,
    CAUSE_CRASH,
    CAUSE_GROUP,
    CAUSE_INIT,
    CAUSE_KILL,
    CAUSE_OWNER,
    CAUSE_REFUSED,
    CAUSE_SCOPE,
    DEAD,
    EXIT,
    GROUP_REMOVED,
    HELD,
    PENDING,
    RESTARTING,
)
from mray._decide.scheduler.instructions import AwaitCreation, AwaitRest, Instruction, RemoveObjects
from mray._decide.scheduler.lifetime_roots import LifetimeRoots
from mray._decide.scheduler.placement import Groups, belongs_to
from mray._decide.scheduler.policy import DEAD_RECORD_BYTES, DEAD_RECORDS, TOMBSTONE_BYTES, TOMBSTONES, shown_variables
from mray._decide.scheduler.records import ActorRecord, Claimant, Member, Ordered
from mray._decide.scheduler.resources import to_quantities
from mray._decide.scheduler.root_names import Environment, detached_root, job_of
from mray.exceptions import describe_status


class ActorsContext(Protocol):
    default_environment: Environment
    members: dict[str, Member]
    roots: LifetimeRoots
    groups: Groups

    def act(self, instruction: Instruction) -> None: ...
    def tell(self, process: str, message: tuple[Any, ...]) -> None: ...
    def shortage(self, claimant: Claimant) -> str | None: ...
    def enqueue(self, claimant: Claimant) -> None: ...
    def withdraw(self, claimant: Claimant) -> None: ...
    def kill(self, claimant: Claimant, kind: str, text: str, *, may_restart: bool = False) -> None: ...


class Actors:
    def __init__(self, context: ActorsContext) -> None:
        self._context = context
        #: Actors that are not dead.
        self.records: dict[bytes, ActorRecord] = {}
        #: Invariant: exactly the named actors in `records`, except those about to end.
        self._names: dict[tuple[str, str], ActorRecord] = {}
        #: States of dead actors, as in `ACTOR_STATE`.
        self._tombstones = History(TOMBSTONES, TOMBSTONE_BYTES)
        self._dead = History(DEAD_RECORDS, DEAD_RECORD_BYTES)
        #: Watchers and holders of actors whose ACTOR_CREATE is unread, in another socket.
        self._early: dict[bytes, tuple[Ordered[str], Ordered[str]]] = {}
        #: Actors killed before it was read; true: without a restart.
        self._killed_early = History(TOMBSTONES, TOMBSTONE_BYTES)

    # ------------------------------------------------------------------------------------ creation
    def create(self, member: Member, request: int, actor_id: bytes, spec: dict[str, Any]) -> None:
        context = self._context
        announced = self.records.get(actor_id)
        if announced is not None or actor_id in self._tombstones:
            # The constructor's arguments have arrived; the actor may have ended meanwhile.
            if announced is not None and announced.announced and announced.owner == member.process:
                announced.announced = False
                announced.spec = spec
                context.enqueue(announced)
            return
        root = detached_root(member.root, actor_id) if spec.get("detached") else member.root
        actor = ActorRecord(actor_id, member.process, spec, context.default_environment, root, context.groups.site(spec.get("group")))
        if actor.name is not None:
            taken = self._found(actor.name, actor.namespace)
            if taken is not None:
                self._answer_taken(member, request, taken, bool(spec.get("get_if_exists")))
                return
            self._names[actor.namespace, actor.name] = actor
        self.records[actor_id] = actor
        if actor.detached:
            context.roots.begin(root)
        member.owned.add(actor_id)
        self._hold(member, actor)
        watchers, holders = self._early.pop(actor_id, (Ordered(), Ordered()))
        for process in holders:
            if process in context.members:
                self._hold(context.members[process], actor)
        for process in watchers:
            if process in context.members:
                self._watch(context.members[process], actor)
        if request:
            context.tell(member.process, (ANSWER, request, True, None))
        shortage = spec.get("refusal") or context.shortage(actor)
        if shortage is not None:
            self.bury(actor, Cause(CAUSE_GROUP if GROUP_REMOVED in shortage else CAUSE_REFUSED, shortage))
        elif not actor.announced:
            context.enqueue(actor)
        if actor_id in self._killed_early:
            self.kill(actor_id, self._killed_early[actor_id])

    def _answer_taken(self, member: Member, request: int, taken: ActorRecord, get_if_exists: bool) -> None:
        if get_if_exists:
            self._context.tell(member.process, (ANSWER, request, True, self.public(taken)))
            return
        text = (
            f"The name {taken.name} (namespace={taken.namespace}) is already taken. Please use a different name or get the existing "
            f"actor using ray.get_actor('{taken.name}', namespace='{taken.namespace}')"
        )
        self._context.tell(member.process, (ANSWER, request, False, text))

    @staticmethod
    def public(actor: ActorRecord) -> dict[str, Any]:
        return {"actor_id": actor.id, "name": actor.name, "namespace": actor.namespace, "public": actor.spec.get("public")}

    def look_up(self, process: str, request: int, name: str, namespace: str) -> None:
        actor = self._found(name, namespace)
        if actor is not None:
            self._context.tell(process, (ANSWER, request, True, self.public(actor)))
            return
        text = (
            f"Failed to look up actor with name '{name}'. You are trying to look up a named actor that was never created, that has "
            f"died, or that is in another namespace than '{namespace}'."
        )
        self._context.tell(process, (ANSWER, request, False, text))

    def _found(self, name: str, namespace: str) -> ActorRecord | None:
        """None for an actor without a holder too, which ends after its constructor."""
        actor = self._names.get((namespace, name))
        return None if actor is None or not (actor.holders or actor.detached) else actor

    # ------------------------------------------------------------------------------------ watchers
    def watch(self, member: Member, actor_id: bytes) -> None:
        actor = self.records.get(actor_id)
        if actor is not None:
            self._watch(member, actor)
        elif actor_id in self._tombstones:
            self._context.tell(member.process, self._tombstones[actor_id])
        else:
            if actor_id not in self._early or not self._early[actor_id][0]:
                self._context.act(AwaitCreation(actor_id))
            self._early.setdefault(actor_id, (Ordered(), Ordered()))[0].add(member.process)

    def _watch(self, member: Member, actor: ActorRecord) -> None:
        actor.watchers.add(member.process)
        member.watched.add(actor.id)
        self._context.tell(member.process, self._state_message(actor))

    def watch_expired(self, actor_id: bytes) -> None:
        """The actor was not created: it belongs to another session, or its creator died first."""
        watchers, _holders = self._early.pop(actor_id, (Ordered(), Ordered()))
        cause = Cause(CAUSE_OWNER, "The actor is dead because its owner has died, or it was never created in this session.")
        for process in watchers:
            self._context.tell(process, (ACTOR_STATE, actor_id, DEAD, "", 0, cause.packed()))

    @staticmethod
    def _state_message(actor: ActorRecord) -> tuple[Any, ...]:
        process = actor.worker.process if actor.worker is not None and actor.state == ALIVE else ""
        return (ACTOR_STATE, actor.id, actor.state, process, actor.incarnation, None if actor.cause is None else actor.cause.packed())

    def _announce(self, actor: ActorRecord) -> None:
        message = self._state_message(actor)
        for process in actor.watchers:
            self._context.tell(process, message)

    # ------------------------------------------------------------------------------------ handles
    def hold(self, member: Member, number: int, actor_ids: list[bytes]) -> None:
        for actor_id in actor_ids:
            actor = self.records.get(actor_id)
            if actor is not None:
                self._hold(member, actor)
            elif actor_id not in self._tombstones:
                self._early.setdefault(actor_id, (Ordered(), Ordered()))[1].add(member.process)
        if number:
            self._context.tell(member.process, (HELD, number))

    @staticmethod
    def _hold(member: Member, actor: ActorRecord) -> None:
        actor.holders.add(member.process)
        member.held.add(actor.id)

    def drop(self, member: Member, actor_ids: list[bytes]) -> None:
        for actor_id in actor_ids:
            member.held.discard(actor_id)
            if actor_id in self._early:
                self._no_longer_early(member.process, actor_id)
            actor = self.records.get(actor_id)
            if actor is not None and member.process in actor.holders:
                actor.holders.discard(member.process)
                self._end_if_unheld(actor)

    def _end_if_unheld(self, actor: ActorRecord) -> None:
        if actor.holders or actor.detached:
            return
        if actor.state == ALIVE and actor.worker is not None:
            self._tell_to_leave(actor)
        elif actor.worker is None:
            self.evict(actor, CAUSE_SCOPE, REASONS[CAUSE_SCOPE])
        # Otherwise its constructor runs, and `constructed` checks again.

    def _tell_to_leave(self, actor: ActorRecord) -> None:
        worker = actor.worker
        if worker is not None and not actor.leaving:
            actor.leaving = True
            self._free_name(actor)
            worker.intended = worker.intended or (CAUSE_SCOPE, REASONS[CAUSE_SCOPE])
            self._context.tell(worker.process, (EXIT, CAUSE_SCOPE, REASONS[CAUSE_SCOPE]))

    # ------------------------------------------------------------------------------------ lives
    def constructed(self, process: str, actor_id: bytes) -> None:
        actor = self.records.get(actor_id)
        if actor is None or actor.worker is None or actor.worker.process != process or actor.state == ALIVE:
            return
        actor.state = ALIVE
        self._announce(actor)
        self._end_if_unheld(actor)

    def failed(self, process: str, actor_id: bytes, error: bytes) -> None:
        """The constructor raised: a restart would not help."""
        actor = self.records.get(actor_id)
        if actor is None or actor.worker is None or actor.worker.process != process:
            return
        worker = actor.worker
        worker.intended = (CAUSE_INIT, REASONS[CAUSE_INIT])
        self._context.tell(process, (EXIT, CAUSE_INIT, REASONS[CAUSE_INIT]))
        self._announce_death(actor, Cause(CAUSE_INIT, REASONS[CAUSE_INIT], worker.pid, None, error))

    def kill(self, actor_id: bytes, no_restart: bool) -> None:
        actor = self.records.get(actor_id)
        if actor is None:
            if actor_id not in self._tombstones:
                self._killed_early[actor_id] = no_restart
            return
        if no_restart or (actor.worker is None and not actor.restarts_left):
            self.evict(actor, CAUSE_KILL, REASONS[CAUSE_KILL])
        elif actor.worker is not None:
            self._context.kill(actor, CAUSE_KILL, REASONS[CAUSE_KILL], may_restart=True)

    def evict(self, actor: ActorRecord, kind: str, text: str) -> None:
        actor.restarts_left = 0
        if actor.worker is not None:
            self._free_name(actor)
            self._context.kill(actor, kind, text)
        else:
            self._withdraw(actor)
            self.bury(actor, Cause(kind, text))

    def worker_died(self, actor: ActorRecord, cause: Cause, may_restart: bool) -> None:
        """The context has released the actor's resources and worker."""
        may_restart = may_restart or cause.kind == CAUSE_CRASH
        unheld = not actor.holders and not actor.detached
        if not (may_restart and actor.restarts_left) or actor.leaving or unheld or actor.state == DEAD:
            self.bury(actor, cause)
            return
        if actor.restarts_left > 0:
            actor.restarts_left -= 1
        constructed = actor.state == ALIVE
        actor.incarnation += 1
        actor.state = RESTARTING
        actor.cause = cause
        self._announce(actor)
        if constructed:
            self._context.enqueue(actor)
        else:  # the cause likely persists, and would use up the restarts in a moment
            actor.resting = True
            self._context.act(AwaitRest(actor.id, actor.incarnation))

    def rested(self, actor_id: bytes, incarnation: int) -> None:
        actor = self.records.get(actor_id)
        if actor is not None and actor.resting and actor.incarnation == incarnation:
            actor.resting = False
            self._context.enqueue(actor)

    def left(self, actor: ActorRecord, kind: str, text: str) -> None:
        assert actor.worker is not None
        if kind != CAUSE_CRASH:
            self._announce_death(actor, Cause(kind, text, actor.worker.pid))

    def _withdraw(self, actor: ActorRecord) -> None:
        if not (actor.announced or actor.resting):
            self._context.withdraw(actor)

    def bury(self, actor: ActorRecord, cause: Cause) -> None:
        """The context of the dead actor holds nothing."""
        actor.over = True
        self._announce_death(actor, cause)

    def _free_name(self, actor: ActorRecord) -> None:
        if actor.name is not None and self._names.get((actor.namespace, actor.name)) is actor:
            del self._names[actor.namespace, actor.name]

    def _announce_death(self, actor: ActorRecord, cause: Cause) -> None:
        if self.records.get(actor.id) is not actor:
            return
        del self.records[actor.id]
        self._free_name(actor)
        actor.state = DEAD
        actor.cause = cause
        self._announce(actor)
        self._tombstones[actor.id] = self._state_message(actor)
        self._dead[actor.id] = self._describe(actor)
        members = self._context.members
        for process in actor.holders:
            if process in members:
                members[process].held.discard(actor.id)
        for process in actor.watchers:
            if process in members:
                members[process].watched.discard(actor.id)
        if actor.owner in members:
            members[actor.owner].owned.discard(actor.id)
        if actor.detached:
            self._context.roots.end(actor.root, at_once=False)
            self._context.act(RemoveObjects(actor.id.hex()))
        self._context.groups.actor_died(actor.id)

    def member_died(self, member: Member, cause: Cause | None = None, role: str = "") -> None:
        """The process is dead (or, without a cause, its root is over): its actors die, its handles are dropped."""
        how = REASONS[CAUSE_OWNER]
        if cause is not None:
            how += f" Its owner{f', {role}' if role else ''} (pid {member.pid}) {describe_status(cause.status)}."
            how += f" {cause.text.splitlines()[0]}" if cause.text else ""
        for actor_id in tuple(member.watched):
            if actor_id in self.records:
                self.records[actor_id].watchers.discard(member.process)
        for actor_id in tuple(member.owned):
            actor = self.records.get(actor_id)
            if actor is not None and not actor.detached:  # None: it ended with another one
                self.evict(actor, CAUSE_OWNER, how)
        self.drop(member, list(member.held))
        for actor_id in tuple(self._early):
            self._no_longer_early(member.process, actor_id, watches=True)

    def _no_longer_early(self, process: str, actor_id: bytes, *, watches: bool = False) -> None:
        watchers, holders = self._early[actor_id]
        holders.discard(process)
        if watches:
            watchers.discard(process)
        if not holders and not watchers:
            del self._early[actor_id]

    # ------------------------------------------------------------------------------------ listings
    def forget_dead(self) -> None:
        self._dead.clear()

    def named(self, all_namespaces: bool, namespace: str) -> list[dict[str, str]]:
        return [{"name": name, "namespace": space} for (space, name) in self._names if all_namespaces or space == namespace]

    def listing(self, *, dead: bool = False) -> list[dict[str, Any]]:
        dead_rows = self._dead if dead else ()
        return [*dead_rows, *map(self._describe, self.records.values())]

    def _describe(self, actor: ActorRecord) -> dict[str, Any]:
        cause = actor.cause
        return {
            "actor_id": actor.id,
            "class_name": actor.spec.get("class_name") or actor.label,
            "state": actor.state,
            "announced": actor.announced,
            "name": actor.name or "",
            "namespace": actor.namespace,
            "pid": actor.worker.pid if actor.worker is not None else cause.pid if cause is not None and actor.state == DEAD else 0,
            "process": actor.worker.process if actor.worker is not None else "",
            "owner": actor.owner,
            "parent": actor.spec.get("parent") or b"",
            "job_id": job_of(actor.root),
            "num_restarts": actor.incarnation,
            "is_detached": actor.detached,
            "required_resources": to_quantities(actor.amounts),
            "placement_group_id": belongs_to(actor),
            "environment": shown_variables(actor.environment),
            "num_holders": len(actor.holders),
            "cause": [cause.kind, cause.reason(), cause.pid, cause.status] if cause is not None else None,
        }

    def validate(self) -> None:
        for key, actor in self._names.items():
            assert self.records.get(actor.id) is actor and key == (actor.namespace, actor.name), key
        for actor in self.records.values():
            assert not actor.over and actor.state in (PENDING, ALIVE, RESTARTING), (actor.id, actor.state)
            assert actor.id not in self._tombstones
            assert (actor.state == ALIVE) <= (actor.worker is not None)
            assert actor.detached or actor.holders or actor.leaving or actor.worker is not None, actor.id
            for process in actor.holders:
                assert actor.id in self._context.members[process].held
            for process in actor.watchers:
                assert actor.id in self._context.members[process].watched
