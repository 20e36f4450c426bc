"""The records of the scheduler: members, workers, leases, actors; and how demands arrive on the wire.

On the wire
-----------
A *demand* (`mray._common.messages.LEASE_REQUEST`) is a dict:

``resources``  name to float: what the lease holds while it lives
``env``        dict of variables the worker must have been started with, or ``None`` for the session's own
``label``      what it is for, in words ("task f"), for texts
``retriable``  whether its tasks are tried again when their worker is ended
``group``      absent, or (placement group id, index of the bundle or -1)
``affinity``   absent, "auto", or a list of CPUs (see `mray._decide.scheduler.affinity`)
``hasty``      absent or true: it is refused when what it asks for is not free

An *actor spec* (`ACTOR_CREATE`) is a dict; the scheduler reads these keys and passes everything to the worker as it is:

``label``          the class's name, for texts
``resources``      name to float: held while the actor lives
``placement``      name to float: what the machine, or its bundle, must have for it, free or not (defaults to `resources`)
``env, group, affinity, hasty``  as in a demand
``name, namespace``  ``name`` is ``None`` for an anonymous actor
``get_if_exists``  answer with the actor that has the name instead of refusing
``detached``       lives until the session ends or it is killed
``max_restarts``   -1: without end
``announced``      true: its arguments are not there yet; a second request with all of the spec follows
``public``         builtin values that `NAME_LOOKUP` answers with: what a handle is made of

`ACTOR_START` adds ``gpu_ids`` (list), ``accelerators`` (kind to indices), ``restarted`` (bool).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, TypeVar

from mray._common.causes import Cause
from mray._common.messages import PENDING
from mray._decide.scheduler.resources import FREE, UNIT, Amounts, Holding, to_amounts
from mray._decide.scheduler.root_names import Environment, stamped

_Item = TypeVar("_Item")

#: Resources held, resources that must be there, environment, what else makes demands differ: placement group and bundle, CPUs.
ClassKey = tuple[tuple[tuple[str, int], ...], tuple[tuple[str, int], ...], Environment, tuple[Any, ...]]


# States of a worker.
STARTING = "starting"
IDLE = "idle"
BUSY = "busy"
LEAVING = "leaving"


#: Behind a worker's GPU: it is a client of MPS there, or was asked to be one, for work with a fraction of that GPU.
SHARED = "shared"


class Ordered(dict[_Item, None]):
    """A set that is walked in the order in which its items came: the same events have the same instructions in the same order."""

    def add(self, item: _Item) -> None:
        self[item] = None

    def discard(self, item: _Item) -> None:
        self.pop(item, None)


class Tally(dict[_Item, int]):
    """How many there are of each; of what is not in it, none."""

    def add(self, item: _Item) -> None:
        self[item] = self.get(item, 0) + 1

    def remove(self, item: _Item) -> None:
        if self[item] > 1:
            self[item] -= 1
        else:
            del self[item]


def environment_of(variables: dict[str, str] | None, default: Environment) -> Environment:
    """The key under which workers with these variables are kept."""
    if variables is None:
        return default
    return tuple(sorted(variables.items()))


class LaunchSite(Protocol):
    """The source of a tenant's resources instead of the machine: see `mray._decide.scheduler.placement`."""

    #: The key of interchangeable demands for it, and the name under which tenants wait for it.
    key: Any
    scope: str

    def lacking(self, tenant: Tenant) -> str | None: ...
    def shortage(self, amounts: Amounts) -> str | None: ...
    def take(self, tenant: Tenant) -> Holding: ...


class Tenant:
    """A holder of resources and a worker: a `GrantedLease` or an `ActorRecord`.

    Invariant: a tenant that is not `over` is in exactly one place: the demand queue (no holding), the queue for a worker (holding,
    no worker), or a worker's `tenant` (holding and worker); an actor that is only announced, or that rests, is in none.
    """

    def __init__(
        self,
        amounts: Amounts,
        placement: Amounts,
        environment: Environment,
        label: str,
        site: LaunchSite | None = None,
        affinity: Any = None,
        hasty: bool = False,
    ) -> None:
        #: Held while it lives.
        self.amounts = amounts
        #: Must be there when it is placed, free or not: an actor that holds no CPU runs where there are CPUs, whoever has these.
        self.placement = placement
        self.environment = environment
        self.label = label
        #: The source of its resources instead of the machine.
        self.site = site
        #: "auto", a tuple of CPUs, or ``None``; and the CPUs that its worker is pinned to while it has one.
        self.affinity = tuple(affinity) if isinstance(affinity, list) else affinity
        self.cpus: tuple[int, ...] = ()
        #: It does not wait for resources: it is refused when they are not free.
        self.hasty = hasty
        #: Its scheduling class: tenants with equal keys are interchangeable.
        self.key: ClassKey = (
            tuple(sorted(amounts.items())),
            tuple(sorted(placement.items())),
            environment,
            (site.key if site is not None else None, self.affinity, hasty),
        )
        self.holding: Holding | None = None
        self.worker: WorkerRecord | None = None
        self.over = False
        #: Number of its assignment to a worker, among all.
        self.began = 0

    @property
    def needs(self) -> Amounts:
        """The resources that must be there, whoever has them, for it to be placed at all: what it holds among them."""
        return {**self.placement, **{name: max(units, self.placement.get(name, 0)) for name, units in self.amounts.items()}}

    @property
    def needs_free(self) -> Amounts:
        """The resources that must be free when it is placed: what it will hold. For one that does not wait, all that must be there."""
        return self.needs if self.hasty else self.amounts

    @property
    def sources(self) -> Iterable[str]:
        """The names under which others wait for what it holds."""
        return self.amounts if self.site is None else (self.site.scope,)

    @property
    def client_process(self) -> str:
        """The client that waits for the lease; nobody in particular for an actor."""
        return ""


class GrantedLease(Tenant):
    """The right of a client to push tasks into one worker."""

    def __init__(
        self, number: int, client: Member, request: int, demand: dict[str, Any], default: Environment, site: LaunchSite | None = None
    ) -> None:
        # A lease that holds nothing else holds one of our own resource, so that their number is bounded.
        amounts = to_amounts(demand["resources"]) or {FREE: UNIT}
        environment = stamped(environment_of(demand.get("env"), default), client.root)
        label = str(demand.get("label", "a task"))
        super().__init__(amounts, amounts, environment, label, site, demand.get("affinity"), bool(demand.get("hasty")))
        self.id = number
        self.client = client
        self.request = request
        self.retriable = bool(demand.get("retriable"))

    @property
    def client_process(self) -> str:
        return self.client.process


class ActorRecord(Tenant):
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
            bool(spec.get("hasty")),
        )
        self.id = actor
        self.owner = owner
        self.spec = spec
        self.name: str | None = spec.get("name")
        self.namespace = str(spec.get("namespace") or "")
        self.detached = bool(spec.get("detached"))
        #: The lifetime root of its process: its own if it is detached, else its creator's.
        self.root = root
        #: -1: without end.
        self.restarts_left = int(spec.get("max_restarts") or 0)
        self.state = PENDING
        self.incarnation = 0
        self.cause: Cause | None = None
        #: Processes that hold handles. An actor whose last holder goes ends, unless it is detached.
        self.holders: Ordered[str] = Ordered()
        self.watchers: Ordered[str] = Ordered()
        #: The arguments of its constructor are not there yet.
        self.announced = bool(spec.get("announced"))
        #: It is started again a little later: its process died in the constructor.
        self.resting = False
        #: It was told to end once its queued calls are done.
        self.leaving = False


class WorkerRecord:
    """One worker process."""

    __slots__ = ("environment", "gpus", "intended", "may_restart", "pid", "process", "state", "tenant")

    def __init__(self, process: str, environment: Environment) -> None:
        self.process = process
        self.environment = environment
        self.pid = 0
        self.state = STARTING
        #: GPUs of the work it has done: ``None`` before any, ``()`` for none; with `SHARED` behind. A worker is only reused for the same.
        self.gpus: tuple[int | str, ...] | None = None
        self.tenant: Tenant | None = None
        #: Why it is going to die, when that was ordered or announced: (kind, text).
        self.intended: tuple[str, str] | None = None
        #: Whether an actor in it may be restarted although its death was ordered.
        self.may_restart = False


class Member:
    """The requests of one process of the session (a driver or a worker), as a client."""

    __slots__ = ("held", "leases", "owned", "pid", "process", "requests", "root", "watched")

    def __init__(self, process: str, pid: int, root: str = "") -> None:
        self.process = process
        self.pid = pid
        #: Its lifetime root (see `mray._decide.scheduler.root_names`).
        self.root = root
        #: Granted leases and those that wait for a worker or resources, by id and by request.
        self.leases: dict[int, GrantedLease] = {}
        self.requests: dict[int, GrantedLease] = {}
        #: Actors it created, that it holds handles of, that it watches.
        self.owned: Ordered[bytes] = Ordered()
        self.held: Ordered[bytes] = Ordered()
        self.watched: Ordered[bytes] = Ordered()
