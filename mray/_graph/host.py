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
        """The answer, once `ready`; raises what the other process raised, or ActorDiedError if it died."""


class Service(Protocol):
    """Runs the programs of an actor: `mray._graph.actor.loop.GraphService`, as callers in the actor's process see it."""

    def is_its_thread(self) -> bool:
        """Whether the calling thread is the one that runs the programs."""

    def ready(self) -> bool:
        """Whether `run` would make progress."""

    def run(self, pending: Callable[[], object]) -> bool:
        """Run every program until all are blocked, or until `pending()`; returns whether any made progress."""


class GraphHost(GroupHost, Protocol):
    """One process of a session, as graphs see it; the base has what groups need too."""

    reactor: WaitingPlace
    spinner: Spinner
    #: This process's compiled graphs that are not torn down; the end of the session ends them.
    graphs: weakref.WeakSet[Any]

    #: The class of the graphs of this process.
    graph_kind: type[Any]
    #: By id, the copies of other processes' graphs (`mray._graph.caller.copies`).
    copies: weakref.WeakValueDictionary[str, Any]

    #: event loop -> its `mray._graph.caller.graph_loop.LoopWatcher`.
    loop_watchers: weakref.WeakKeyDictionary[Any, Any]

    def gpus(self) -> GpuEdges:
        """The GPUs of this process; loads the modules that use them."""

    def settle_gpus(self, patience: float) -> None:
        """Call `GpuEdges.settle` if this process has used its GPUs."""

    @property
    def service(self) -> Service | None:
        """Runs the programs of the actor in this process; None in a driver."""

    def fetch(self, refs: Sequence[ObjectRef]) -> Callable[[], int]:
        """Begin to fetch these objects; the returned function counts those that have arrived, and is cheap."""

    def is_ready(self, ref: ObjectRef) -> bool:
        """Whether the value of an object is in this process."""

    def ask_node(self, what: str, *arguments: Any) -> Any:
        """Query the node and wait for its answer."""

    def actor_process(self, actor: str) -> str:
        """The process of an actor; waits until it lives. ActorDiedError if it never will."""

    def death_of(self, actor: str, process: str) -> Exception | None:
        """The error with which this process of an actor ended, or None if it answers that it lives."""

    def request(self, process: str, verb: str, payload: bytes) -> Pending:
        """Send a request to the service of a process, without waiting. A request to this process is handled before this returns."""

    def group_doorbell(self, key: str, doorbells: Sequence[Doorbell]) -> GroupDoorbell | None:
        """One doorbell for all readers of a ring that this process writes, until `end_group_doorbell`; None: ring them one by one."""

    def join_group_doorbell(self, writer: str, key: str) -> Callable[[], None]:
        """As a reader of such a ring, also wait for its doorbell, until the returned function is called."""

    def end_group_doorbell(self, key: str) -> None:
        """Close the doorbell of a closed ring."""

    def look_at_calls(self, who: str, on: bool) -> dict[str, Any] | None:
        """Turn spans of this process's ordinary calls on or off for the caller `who`; turning them off returns the spans."""

    def kill_actors(self, actors: Sequence[str]) -> None:
        """Kill these actors without a restart."""


def weakly(method: Callable[..., object], *arguments: object) -> Callable[[Exception], None]:
    """A callback for a death, which calls ``method(*arguments, error)`` and does not keep the method's object alive."""
    reference = weakref.WeakMethod(method)

    def tell(error: Exception) -> None:
        alive = reference()
        if alive is not None:
            alive(*arguments, error)

    return tell


def raise_death(host: GraphHost, processes: Mapping[str, str], error: Exception) -> None:
    """Raise the cause of death of one of these actors (id -> process), if one is dead.

    `error` is how the death showed, such as a missing socket or a request without an answer.
    """
    for actor, process in processes.items():
        death = host.death_of(actor, process)
        if death is not None:
            raise death from error
