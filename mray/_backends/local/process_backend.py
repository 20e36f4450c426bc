"""`ProcessBackend`: the native engine's share of one simulated process, with graphs that run cooperatively."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mray._backends.lazy_graphs import Graphs
from mray._backends.native import NativeBackend

if TYPE_CHECKING:
    from mray._backends.local.local_graphs import LocalHost


class LocalGraphs(Graphs):
    """The graphs of a simulated process."""

    made: LocalHost | None

    def _make(self) -> LocalHost:
        from mray._backends.local.local_graphs import LocalHost  # noqa: PLC0415  (slow to import, and many programs have no graph)

        return LocalHost(self._client, self._worker)


class ProcessBackend(NativeBackend):
    """The backend of the driver, or of a worker."""

    graphs: LocalGraphs
    graphs_class = LocalGraphs

    def leave_graphs(self) -> None:
        """Release the memory of graphs, which no kernel frees: the process is dead. In its main simulated thread, as the last thing."""
        if self.graphs.made is not None:
            self.graphs.made.die()
