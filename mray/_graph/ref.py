"""What `execute` returns: a claim to one output of one execution.

Lives where the graph was compiled. Dropping it unread frees its result: the finalizer, which may run between any two byte codes,
only appends to the graph's list of dropped refs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from mray._api.dag_node import GraphRef

if TYPE_CHECKING:
    from mray._graph.compiled import CompiledGraph


class CompiledDAGRef(GraphRef):
    """The result of one execution of a compiled graph, to be got once.

    Cannot be copied, pickled or passed to a task, and `mray.wait` does not take it.
    """

    __slots__ = ("_channel", "_done", "_graph", "_index")

    def __init__(self, graph: CompiledGraph, index: int, channel: int | None = None) -> None:
        self._graph = graph
        self._index = index
        #: Which output; None when the graph has one output and no list.
        self._channel = channel
        self._done = False

    def get(self, timeout: float | None = None) -> Any:
        """The value, or raise the exception of the method that failed.

        `timeout` in seconds: ``None`` and ``-1`` wait for ever, ``0`` does not wait; RayChannelTimeoutError when it has passed, after which
        the ref can still be got. ActorDiedError as soon as an actor of the graph has died. From any thread.
        """
        if self._done:
            raise ValueError("ray.get() can only be called once on a CompiledDAGRef, and it was already called.")
        return self._graph._fetch(self, self._index, self._channel, timeout)

    def __str__(self) -> str:
        return f"CompiledDAGRef({self._graph.get_id()}, execution_index={self._index}, channel_index={self._channel})"

    __repr__ = __str__

    def __copy__(self) -> NoReturn:
        raise ValueError("CompiledDAGRef cannot be copied.")

    def __deepcopy__(self, memo: Any) -> NoReturn:
        raise ValueError("CompiledDAGRef cannot be deep copied.")

    def __reduce__(self) -> NoReturn:
        raise ValueError("CompiledDAGRef cannot be pickled.")

    def __del__(self) -> None:
        if not self._done:
            self._graph._note_drop((self._index, self._channel))
