"""`GraphHost`: the services of a process for the graphs in it.

Graphs and the runtime do not import each other: `mray._backends.graph_host` implements this protocol between them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from mray._channel.group_host import GroupHost
from mray._common.bridge import Waitable

if TYPE_CHECKING:
    from mray._api.object_ref import ObjectRef
    from mray._graph.gpu_edges import GpuEdges
    from mray._ipc.doorbell import Doorbell, GroupDoorbell
    from mray._ipc.spin import Spinner
    from mray._ipc.waiting_place import WaitingPlace


class Pending(Waitable, Protocol):
    """A request on its way to another process."""

    def result(self) -> bytes:
        """The answer; raises what the other side raised, or ActorDiedError when it died. Call when `ready`."""


class Service(Protocol):
    """Runs the programs of an actor: `mray._graph.actor.loop.GraphService`, as callers in the actor's process see it."""

    def is_its_thread(self) -> bool:
        """Whether the calling thread is the one that runs the programs."""

    def ready(self) -> bool:
        """Whether `run` would make progress."""

    def run(self, pending: Callable[[], object]) -> bool:
        """Run every program until all are blocked, or until `pending()`; whether any made progress."""


class GraphHost(GroupHost, Protocol):
    """One process of a session, as graphs see it; what groups need of it, too, is said in the base."""

    reactor: WaitingPlace
    spinner: Spinner
    #: The compiled graphs of this process that are not torn down; the end of the session ends them.
    graphs: weakref.WeakSet[Any]

    #: The class of the graphs of this process.
    graph_kind: type[Any]
    #: By id, the graphs of other processes that this one holds (`mray._graph.caller.copies`).
    copies: weakref.WeakValueDictionary[str, Any]

    #: event loop -> its `mray._graph.caller.graph_loop.LoopWatcher`.
    loop_watchers: weakref.WeakKeyDictionary[Any, Any]

    def gpus(self) -> GpuEdges:
        """The GPUs of this process; asking has the process load what uses them."""

    def settle_gpus(self, patience: float) -> None:
        """`GpuEdges.settle`, where this process has used its GPUs."""

    @property
    def service(self) -> Service | None:
        """Runs the programs of the actor in this process; None in a driver."""

    def fetch(self, refs: Sequence[ObjectRef]) -> Callable[[], int]:
        """Begin to fetch the values of these objects; the function says how many are here, at some nanoseconds for each."""

    def is_ready(self, ref: ObjectRef) -> bool:
        """Whether the value of an object is here."""

    def ask_node(self, what: str, *arguments: Any) -> Any:
        """The node's answer to a question (QUERY); waits for it."""

    def actor_process(self, actor: str) -> str:
        """The process an actor lives in; waits until it does. Raises ActorDiedError."""

    def death_of(self, actor: str, process: str) -> Exception | None:
        """The error for which this process of an actor has ended; None: it lives. Waits until it has answered, or its end is known."""

    def request(self, process: str, verb: str, payload: bytes) -> Pending:
        """Have the service of a process `handle` something; returns at once. In this process, it is handled before returning."""

    def group_doorbell(self, key: str, doorbells: Sequence[Doorbell]) -> GroupDoorbell | None:
        """One doorbell for all readers of a ring that this process writes; None: ring them one by one. Ended by `end_group_doorbell`."""

    def join_group_doorbell(self, writer: str, key: str) -> Callable[[], None]:
        """Wait, as a reader of such a ring, for its doorbell too, until the returned function is called."""

    def end_group_doorbell(self, key: str) -> None:
        """Close the doorbell of a ring that was closed."""

    def look_at_calls(self, who: str, on: bool) -> dict[str, Any] | None:
        """Record spans of this process's ordinary calls while any caller (`who`) has them on; returns the spans when one turns them off."""

    def kill_actors(self, actors: Sequence[str]) -> None:
        """End these actors for good."""


def weakly(method: Callable[..., object], *facts: object) -> Callable[[Exception], None]:
    """A callback for a death, which calls ``method(*facts, error)`` and does not keep the method's object alive."""
    reference = weakref.WeakMethod(method)

    def tell(error: Exception) -> None:
        alive = reference()
        if alive is not None:
            alive(*facts, error)

    return tell


def raise_death(host: GraphHost, processes: Mapping[str, str], error: Exception) -> None:
    """Raise the cause of death of one of these actors, if one is dead; `error` is how its death showed here, or in another actor.

    A death shows itself as a socket that is not there, or as a request without an answer. `processes`: by the
    actor's id.
    """
    for actor, process in processes.items():
        death = host.death_of(actor, process)
        if death is not None:
            raise death from error
