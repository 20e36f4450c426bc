"""`ProcessBackend`: the native engine's share of one simulated process, with graphs that run cooperatively."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mray._backends.native import NativeBackend

if TYPE_CHECKING:
    from mray._backends.local.local_graphs import LocalHost


class ProcessBackend(NativeBackend):
    """The backend of the driver, or of a worker."""

    graph_host: LocalHost | None

    def leave_graphs(self) -> None:
        """Release the memory of graphs, which no kernel frees: the process is dead. In its main simulated thread, as the last thing."""
        host = self.graph_host
        if host is not None:
            host.die()

    def host(self) -> LocalHost:
        if self.graph_host is None:
            from mray._backends.local.local_graphs import LocalHost  # noqa: PLC0415  (slow to import, and many programs have no graph)

            self.graph_host = LocalHost(self.client, self._worker)
        return self.graph_host
