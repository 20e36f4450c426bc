"""`GraphHost`: the services of a process for the graphs in it.

Implemented by `mray._backends.graph_host`.
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
    def result(self) -> bytes:
        """Once `ready`; raises what the other process raised, or ActorDiedError."""


class Service(Protocol):
    """`mray._graph.actor.loop.GraphService`, as callers in its process see it."""

    def is_its_thread(self) -> bool:
        """Whether the calling thread is the one that runs the programs."""

    def ready(self) -> bool:
        """Whether `run` would make progress."""

    def run(self, pending: Callable[[], object]) -> bool:
        """Run programs until blocked or `pending()`; returns whether any made progress."""


class GraphHost(GroupHost, Protocol):
    """One process of a session, as graphs see it."""

    reactor: WaitingPlace
    spinner: Spinner
    #: Graphs compiled here and not torn down; ended with the session.
    graphs: weakref.WeakSet[Any]

    graph_kind: type[Any]
    #: Copies of other processes' graphs, by id.
    copies: weakref.WeakValueDictionary[str, Any]

    #: Event loop -> its `mray._graph.caller.graph_loop.LoopWatcher`.
    loop_watchers: weakref.WeakKeyDictionary[Any, Any]

    def gpus(self) -> GpuEdges:
        """Loads the modules that use GPUs."""

    def settle_gpus(self, patience: float) -> None:
        """`GpuEdges.settle` if this process has used its GPUs."""

    @property
    def service(self) -> Service | None:
        """None in a driver."""

    def fetch(self, refs: Sequence[ObjectRef]) -> Callable[[], int]:
        """Begin to fetch; the returned function counts arrived objects, and is cheap."""

    def is_ready(self, ref: ObjectRef) -> bool:
        """Whether the value is in this process."""

    def ask_node(self, what: str, *arguments: Any) -> Any:
        """Query the node and wait for its answer."""

    def actor_process(self, actor: str) -> str:
        """Waits until the actor lives; ActorDiedError if it never will."""

    def wait_for_answers(self, pendings: Mapping[str, Pending]) -> None:
        """Wait until these actors (id -> request) have answered."""

    def death_of(self, actor: str, process: str) -> Exception | None:
        """The error with which this process ended, or None if it answers."""

    def request(self, process: str, verb: str, payload: bytes) -> Pending:
        """Does not wait, but handles a request to this process before it returns."""

    def group_doorbell(self, key: str, doorbells: Sequence[Doorbell]) -> GroupDoorbell | None:
        """One doorbell for all readers of a ring, until `end_group_doorbell`; None: ring them one by one."""

    def join_group_doorbell(self, writer: str, key: str) -> Callable[[], None]:
        """Wait also for a ring's group doorbell, until the returned function is called."""

    def end_group_doorbell(self, key: str) -> None:
        """Close the doorbell of a closed ring."""

    def look_at_calls(self, who: str, on: bool) -> dict[str, Any] | None:
        """Turn spans of ordinary calls on or off for `who`; turning off returns them."""

    def kill_actors(self, actors: Sequence[str]) -> None:
        """Kill these actors without a restart."""


def weakly(method: Callable[..., object], *arguments: object) -> Callable[[Exception], None]:
    """A callback ``method(*arguments, error)`` that does not keep the method's object alive."""
    reference = weakref.WeakMethod(method)

    def tell(error: Exception) -> None:
        alive = reference()
        if alive is not None:
            alive(*arguments, error)

    return tell


def raise_death(host: GraphHost, processes: Mapping[str, str], error: Exception) -> None:
    """Raise the cause of death if one of these actors (id -> process) is dead. `error`: how the death showed."""
    for actor, process in processes.items():
        death = host.death_of(actor, process)
        if death is not None:
            raise death from error
