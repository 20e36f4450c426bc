"""The scheduler's records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, TypeVar

from mray._common.causes import Cause
from mray._common.messages import PENDING
from mray._decide.scheduler.resources import FREE, UNIT, Amounts, Holding, to_amounts
from mray._decide.scheduler.root_names import Environment, stamped

_Item = TypeVar("_Item")

#: Resources held, resources that must exist, environment, and (placement group and bundle, CPUs, fail-fast).
ClassKey = tuple[tuple[tuple[str, int], ...], tuple[tuple[str, int], ...], Environment, tuple[Any, ...]]


STARTING = "starting"
IDLE = "idle"
BUSY = "busy"
LEAVING = "leaving"


#: Follows a worker's GPU: the worker is, or was asked to be, a client of MPS for a fraction of it.
SHARED = "shared"


class Ordered(dict[_Item, None]):
    """A set with insertion order: equal events give equal instructions in equal order."""

    def add(self, item: _Item) -> None:
        self[item] = None

    def discard(self, item: _Item) -> None:
        self.pop(item, None)


class Tally(dict[_Item, int]):
    def add(self, item: _Item) -> None:
        self[item] = self.get(item, 0) + 1

    def remove(self, item: _Item) -> None:
        if self[item] > 1:
            self[item] -= 1
        else:
            del self[item]


def environment_of(variables: dict[str, str] | None, default: Environment) -> Environment:
    if variables is None:
        return default
    return tuple(sorted(variables.items()))


class LaunchSite(Protocol):
    """A source of resources other than the machine: see `mray._decide.scheduler.placement`."""

    #: The key of interchangeable demands for it; claimants wait under it.
    key: Any
    scope: str

    def lacking(self, claimant: Claimant) -> str | None: ...
    def shortage(self, amounts: Amounts) -> str | None: ...
    def take(self, claimant: Claimant) -> Holding: ...


class Claimant:
    """A holder of resources and a worker: a `GrantedLease` or an `ActorRecord`.

    Invariant: a claimant that is not `over` is in exactly one of: the demand queue (no holding), the queue for a worker (holding, no
    worker), a worker's `claimant` (holding and worker); an actor that is only announced, or that rests, is in none.
    """

    def __init__(
        self,
        amounts: Amounts,
        placement: Amounts,
        environment: Environment,
        label: str,
        site: LaunchSite | None = None,
        affinity: Any = None,
        fail_fast: bool = False,
    ) -> None:
        #: Resources held while it lives.
        self.amounts = amounts
        #: Must exist when it is placed, free or not: an actor that holds no CPU runs where there are CPUs.
        self.placement = placement
        self.environment = environment
        self.label = label
        #: The source of its resources; None: the machine.
        self.site = site
        #: "auto", a tuple of CPUs, or None; and the CPUs that its worker is pinned to.
        self.affinity = tuple(affinity) if isinstance(affinity, list) else affinity
        self.cpus: tuple[int, ...] = ()
        #: Refused when its resources are not free, instead of queued.
        self.fail_fast = fail_fast
        self.key: ClassKey = (
            tuple(sorted(amounts.items())),
            tuple(sorted(placement.items())),
            environment,
            (site.key if site is not None else None, self.affinity, fail_fast),
        )
        self.holding: Holding | None = None
        self.worker: WorkerRecord | None = None
        self.over = False
        #: The number of its assignment to a worker, among all.
        self.began = 0

    @property
    def needs(self) -> Amounts:
        """Resources that must exist when it is placed, including those it will hold."""
        return {**self.placement, **{name: max(units, self.placement.get(name, 0)) for name, units in self.amounts.items()}}

    @property
    def needs_free(self) -> Amounts:
        """Resources that must be free when it is placed: those it will hold; for a fail-fast claimant, all that must exist."""
        return self.needs if self.fail_fast else self.amounts

    @property
    def sources(self) -> Iterable[str]:
        """The names under which others wait for what it holds."""
        return self.amounts if self.site is None else (self.site.scope,)

    @property
    def client_process(self) -> str:
        return ""


class GrantedLease(Claimant):
    """The right of a client to push tasks into one worker."""

    def __init__(
        self, number: int, client: Member, request: int, demand: dict[str, Any], default: Environment, site: LaunchSite | None = None
    ) -> None:
        amounts = to_amounts(demand["resources"]) or {FREE: UNIT}
        environment = stamped(environment_of(demand.get("env"), default), client.root)
        label = str(demand.get("label", "a task"))
        super().__init__(amounts, amounts, environment, label, site, demand.get("affinity"), bool(demand.get("fail_fast")))
        self.id = number
        self.client = client
        self.request = request
        self.retriable = bool(demand.get("retriable"))

    @property
    def client_process(self) -> str:
        return self.client.process


class ActorRecord(Claimant):
    """One actor over all its incarnations."""

    def __init__(
        self, actor: bytes, owner: str, spec: dict[str, Any], default: Environment, root: str = "", site: LaunchSite | None = None
    ) -> None:
        amounts = to_amounts(spec.get("resources") or {})
        placement = spec.get("placement")
        super().__init__(
            amounts,
            amounts if placement is None else to_amounts(placement),
            stamped(environment_of(spec.get("env"), default), root),
            str(spec.get("label", "an actor")),
            site,
            spec.get("affinity"),
            bool(spec.get("fail_fast")),
        )
        self.id = actor
        self.owner = owner
        self.spec = spec
        self.name: str | None = spec.get("name")
        self.namespace = str(spec.get("namespace") or "")
        self.detached = bool(spec.get("detached"))
        #: The lifetime root: its own if it is detached, else its creator's.
        self.root = root
        #: -1: unlimited.
        self.restarts_left = int(spec.get("max_restarts") or 0)
        self.state = PENDING
        self.incarnation = 0
        self.cause: Cause | None = None
        #: Processes with handles. An actor that is not detached ends with its last holder.
        self.holders: Ordered[str] = Ordered()
        self.watchers: Ordered[str] = Ordered()
        #: Whether its constructor's arguments are still to arrive.
        self.announced = bool(spec.get("announced"))
        #: It waits before a restart, since its process died in the constructor.
        self.resting = False
        #: It was asked to exit after its queued calls.
        self.leaving = False


class WorkerRecord:
    __slots__ = ("actor", "claimant", "environment", "gpus", "intended", "may_restart", "pid", "process", "state")

    def __init__(self, process: str, environment: Environment) -> None:
        self.process = process
        self.environment = environment
        self.pid = 0
        self.state = STARTING
        #: GPUs of the work it has done: None before any, ``()`` for none; `SHARED` at the end.
        self.gpus: tuple[int | str, ...] | None = None
        self.claimant: Claimant | None = None
        #: The actor that it has become; it ends with the process.
        self.actor: ActorRecord | None = None
        #: Why its death was ordered or announced: (kind, text).
        self.intended: tuple[str, str] | None = None
        #: An actor in it may be restarted although its death was ordered.
        self.may_restart = False


class Member:
    """A driver or a worker as a client."""

    __slots__ = ("held", "leases", "owned", "pid", "process", "requests", "root", "watched")

    def __init__(self, process: str, pid: int, root: str = "") -> None:
        self.process = process
        self.pid = pid
        self.root = root
        #: Leases by id, granted or waiting for a worker or resources, and by request.
        self.leases: dict[int, GrantedLease] = {}
        self.requests: dict[int, GrantedLease] = {}
        #: Actors that it created, holds handles of, watches.
        self.owned: Ordered[bytes] = Ordered()
        self.held: Ordered[bytes] = Ordered()
        self.watched: Ordered[bytes] = Ordered()
