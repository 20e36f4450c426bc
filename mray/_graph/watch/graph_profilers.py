"""Other profilers in an actor, while its graph lives: RAY_CGRAPH_ENABLE_TORCH_PROFILING and ..._NVTX_PROFILING switch them on.

In the actor's main thread, with the driver's settings. Traces go to the driver's working directory when the actor leaves the graph or
exits; not when it is killed.
"""

from __future__ import annotations

import atexit
import logging

from mray._graph.plan import Profilers
from mray._graph.watch.probes import Probe, RangeProbe
from mray._trace.nvtx import NvtxRanges, nvtx_domain
from mray._trace.torch_profiler import TorchProfiler, TorchRanges

logger = logging.getLogger(__name__)


class ProgramProfilers:
    """ImportError when a package is missing."""

    def __init__(self, wanted: Profilers) -> None:
        self.probes: tuple[Probe, ...] = ()
        self._torch: TorchProfiler | None = None
        self._folder = wanted.torch
        if wanted.nvtx:
            self.probes = (RangeProbe(NvtxRanges(nvtx_domain())),)
        if wanted.torch:
            # Of two graphs with the same actor, the first has the profiler: its trace shows both.
            profiler = TorchProfiler()
            why = profiler.start()
            if why == "torch is not installed":
                raise ImportError("RAY_CGRAPH_ENABLE_TORCH_PROFILING needs torch in the actors of the graph, and it is not installed.")
            self.probes = (*self.probes, RangeProbe(TorchRanges()))
            if not why:
                self._torch = profiler
                atexit.register(self.close)

    def close(self) -> None:
        """Idempotent."""
        profiler, self._torch = self._torch, None
        if profiler is None:
            return
        atexit.unregister(self.close)
        try:
            profiler.save(self._folder)
        except Exception:
            logger.exception("The trace of the torch profiler could not be written to %s", self._folder)
