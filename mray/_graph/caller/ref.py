"""`CompiledDAGRef`, which `execute` returns; and `mray.wait` on such refs.

The finalizer of an unread ref, which may run between any two byte codes, only appends to the graph's dropped refs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mray._api.dag_node import GraphRef
from mray._api.object_ref import ObjectRef
from mray._channel.base import Failed
from mray._common.clock import now
from mray._common.places import undone
from mray._graph.caller.executions import Claim, Executions
from mray._graph.caller.receive import receive_into
from mray._graph.host import GraphHost


class CompiledDAGRef(GraphRef):
    """The result of one execution of a compiled graph, to be got once.

    Cannot be copied, pickled or passed to a task.
    """

    __slots__ = ("_channel", "_done", "graph", "index")

    def __init__(self, graph: Executions, index: int, channel: int | None = None) -> None:
        self.graph = graph
        self.index = index
        #: The output's position; None if the graph has one output and no list.
        self._channel = channel
        self._done = False

    def put_back(self, value: Any) -> None:
        self.graph.put_back(self.index, self._channel, value)
        self._done = False

    @undone(lambda local, value: local["self"].put_back(value))
    def get(self, timeout: float | None = None, out: Any = None) -> Any:
        """Return the value, or raise the exception of the failed method.

        `timeout` in seconds: ``None`` and ``-1`` wait forever, ``0`` does not wait. RayChannelTimeoutError, with a report of where each
        actor is, when it has passed; the ref can still be got. ActorDiedError as soon as an actor of the graph has died. Any thread.

        With `out`, a numpy array or torch tensor of the value's shape and dtype, the value is copied there, its slot is freed
        immediately, and `out` is returned; ValueError if it does not fit, after which the ref can still be got.
        """
        if self._done:
            raise ValueError("ray.get() can only be called once on a CompiledDAGRef, and it was already called.")
        value = self.graph.fetch(self.index, self._channel, timeout)
        self._done = True
        if value.__class__ is Failed:
            raise self.graph.error(value)
        if out is None:
            return value
        try:
            return receive_into(value, out)
        except BaseException:
            self.put_back(value)
            raise

    def get_among(self, refs: Sequence[Any], timeout: float | None, deadline: float | None) -> Any:
        if self._done:
            raise ValueError("ray.get() can only be called once on a CompiledDAGRef, and it was already called.")
        graph = self.graph

        def beside() -> list[Claim]:
            return [ref.claim for ref in refs if ref.__class__ is CompiledDAGRef and ref.graph is graph and ref.index == self.index]

        value = self.graph.fetch(self.index, self._channel, timeout, deadline, beside)
        self._done = True
        if value.__class__ is Failed:
            raise self.graph.error(value)
        return value

    @property
    def ready(self) -> bool:
        """Whether `get` would not wait. Any thread."""
        return self.graph.results.has(self.index, self._channel) or bool(self.graph.state)

    @property
    def claim(self) -> Claim:
        return self.index, self._channel

    def wait_among(self, refs: Sequence[Any], num_returns: int, timeout: float | None) -> tuple[list[Any], list[Any]]:
        return _wait(refs, num_returns, timeout)

    # ------------------------------------------------------------------------------------ looking
    def __str__(self) -> str:
        return f"CompiledDAGRef({self.graph.get_id()}, execution_index={self.index}, channel_index={self._channel})"

    __repr__ = __str__

    def __del__(self) -> None:
        if not self._done:
            self.graph.note_drop((self.index, self._channel))


def _wait(refs: Sequence[Any], num_returns: int, timeout: float | None) -> tuple[list[Any], list[Any]]:
    """At least one ref is a graph's. RayCgraphCapacityExceeded if a graph has more results before an awaited one than it may keep."""
    claims = [ref for ref in refs if ref.__class__ is CompiledDAGRef]
    graphs = [claim.graph for claim in claims]
    waiting = next((graph for graph in graphs if graph.runs_here), graphs[0])
    host = waiting.host
    _read_ahead(claims)
    found = _split(refs, num_returns, host)
    if len(found[0]) == num_returns:
        return found
    count_objects = host.fetch([ref for ref in refs if isinstance(ref, ObjectRef)])
    deadline = None if timeout is None else now() + timeout

    def count() -> int:
        return sum(claim.ready for claim in claims) + count_objects()

    def decides() -> bool:
        return count() >= num_returns or any(claim.graph.results.is_due(*claim.claim) for claim in claims if not claim.ready)

    while waiting.wait_until(decides, deadline):
        _read_ahead(claims)
        if count() >= num_returns:
            break
    return _split(refs, num_returns, host)


def _read_ahead(claims: Sequence[CompiledDAGRef]) -> None:
    for claim in claims:
        claim.graph.read_ahead(*claim.claim)


def _split(refs: Sequence[Any], num_returns: int, host: GraphHost) -> tuple[list[Any], list[Any]]:
    ready: list[Any] = []
    rest: list[Any] = []
    for index, ref in enumerate(refs):
        if not (ref.ready if ref.__class__ is CompiledDAGRef else host.is_ready(ref)):
            rest.append(ref)
            continue
        ready.append(ref)
        if len(ready) == num_returns:
            rest += refs[index + 1 :]
            break
    return ready, rest
