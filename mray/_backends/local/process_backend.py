"""`ProcessBackend`: the native engine's share of one simulated process, with graphs that run cooperatively."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mray._backends.native import NativeBackend

if TYPE_CHECKING:
    from mray._backends.local.graphs import LocalHost
    from mray._graph.caller.compiled import CompiledGraph


class ProcessBackend(NativeBackend):
    """The backend of the driver, or of a worker."""

    graph_host: LocalHost | None

    def compile_graph(self, root: Any, **options: Any) -> CompiledGraph:
        from mray._backends.local.graphs import LocalGraph  # noqa: PLC0415  (slow to import, and many programs have no graph)
        from mray._graph.compiler.compile import compile_graph  # noqa: PLC0415

        return compile_graph(self.host(), root, kind=LocalGraph, **options)

    def leave_graphs(self) -> None:
        """Release the memory of graphs, which no kernel frees: the process is dead. In its main simulated thread, as the last thing."""
        host = self.graph_host
        if host is not None:
            host.die()

    def host(self) -> LocalHost:
        if self.graph_host is None:
            from mray._backends.local.graphs import LocalHost  # noqa: PLC0415

            self.graph_host = LocalHost(self.client, self._worker)
        return self.graph_host
