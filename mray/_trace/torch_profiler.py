"""The torch profiler in a process that runs a program, for its main thread.

Either during the life of a graph (RAY_CGRAPH_ENABLE_TORCH_PROFILING), with a file at the end; or for one profile, which takes the events
over: torch has one profiler.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from typing import Any

from mray._common.clock import time_ns
from mray._common.kept import io, os, socket
from mray._trace.span import clock

#: In the working directory of the process that compiled the graph.
FOLDER = "compiled_graph_torch_profiles"
#: Such an event's name ends with the clock's value: times in torch's traces have another origin.
_MARK = "mray clock "
#: Each is a little late, the first one most.
MARKS = 5

_running: TorchProfiler | None = None


class TorchProfiler:
    """One run of torch's profiler."""

    def __init__(self) -> None:
        self._profiler: Any = None

    def start(self) -> str:
        """Begin. Returns why it cannot, or ""."""
        global _running
        if _running is not None:
            return "it runs already"
        try:
            import torch  # noqa: PLC0415
        except ImportError:
            return "torch is not installed"
        activities = [torch.profiler.ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        profiler = torch.profiler.profile(activities=activities, with_stack=True)
        profiler.start()
        self._profiler = profiler
        _running = self
        for _ in range(MARKS):
            with torch.autograd.profiler.record_function(f"{_MARK}{clock()}"):
                pass
        return ""

    def _end(self) -> Any:
        global _running
        profiler, self._profiler = self._profiler, None
        if profiler is not None:
            _running = None
            profiler.stop()
        return profiler

    def stop(self) -> list[dict[str, Any]]:
        """End. Returns the events with the times of `clock`; none if it does not run."""
        profiler = self._end()
        if profiler is None:
            return []
        fd, path = tempfile.mkstemp(prefix="mray-torch-", suffix=".json")
        os.close(fd)
        try:
            profiler.export_chrome_trace(path)
            with io.open(path, encoding="utf-8", errors="replace") as file:
                return on_our_clock(json.load(file).get("traceEvents", []))
        finally:
            os.unlink(path)

    def save(self, folder: str) -> str:
        """End, and write ``<host>_<pid>.<time>.pt.trace.json``, named as by torch's own handler. Returns its path, or "" if it does not
        run.
        """
        profiler = self._end()
        if profiler is None:
            return ""
        os.makedirs(folder, exist_ok=True)
        name = f"{socket.gethostname()}_{os.getpid()}.{time_ns()}.pt.trace.json"
        partial = os.path.join(folder, f".{name}")
        try:
            profiler.export_chrome_trace(partial)
            os.replace(partial, os.path.join(folder, name))
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(partial)
            raise
        return os.path.join(folder, name)


def on_our_clock(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The events of a torch trace with the times of `clock`; none if the trace has no mark."""
    marks = [each for each in events if str(each.get("name", "")).startswith(_MARK) and "ts" in each]
    if not marks:
        return []
    shift = max(int(each["name"][len(_MARK) :]) / 1000 - float(each["ts"]) for each in marks)
    moved = []
    for each in events:
        if each in marks or (each.get("ph") == "M" and each.get("name") in ("process_name", "process_sort_index", "process_labels")):
            continue  # the trace names the process
        moved.append({**each, "ts": float(each["ts"]) + shift} if "ts" in each else each)
    return moved


class TorchRanges:
    """Ranges in the torch profiler, for `mray._graph.watch.probes.RangeProbe`; it supports none that overlap."""

    def __init__(self) -> None:
        import torch  # noqa: PLC0415

        self._range: Any = torch.autograd.profiler.record_function

    def push(self, kind: str, name: str) -> Any:
        token = self._range(f"{kind}: {name}")
        token.__enter__()
        return token

    def pop(self, token: Any) -> None:
        token.__exit__(None, None, None)

    def start(self, _kind: str, _name: str) -> Any:
        return self

    def stop(self, token: Any) -> None:
        pass
