"""`DAGContext`: defaults of compiled graphs.

One per process; starts from the settings (``MRAY_CGRAPH_*`` and Ray's ``RAY_CGRAPH_*``).
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from mray._common import settings

_current: DAGContext | None = None
_lock = threading.Lock()


@dataclass
class DAGContext:
    """Defaults of compiled graphs. Timeouts in seconds; None waits without limit."""

    #: How long `execute` waits for room.
    submit_timeout: float | None = field(default_factory=settings.CGRAPH_SUBMIT_TIMEOUT.get)
    #: How long `get` waits. Unlike on Ray without limit by default: slow is not dead, and death is noticed immediately.
    get_timeout: float | None = field(default_factory=settings.CGRAPH_GET_TIMEOUT.get)
    #: How long `teardown` waits for running methods before it reports that.
    teardown_timeout: float = field(default_factory=settings.CGRAPH_TEARDOWN_TIMEOUT.get)
    #: Without effect here: nothing polls.
    read_iteration_timeout: float = 0.1
    #: Without effect here: buffers grow.
    buffer_size_bytes: int = field(default_factory=settings.CGRAPH_BUFFER_SIZE_BYTES.get)
    max_inflight_executions: int = field(default_factory=settings.CGRAPH_MAX_INFLIGHT.get)
    max_buffered_results: int = field(default_factory=settings.CGRAPH_MAX_BUFFERED.get)
    overlap_gpu_communication: bool = field(default_factory=settings.CGRAPH_OVERLAP.get)

    def __post_init__(self) -> None:
        if self.get_timeout is not None and self.read_iteration_timeout > self.get_timeout:
            raise ValueError(
                f"RAY_CGRAPH_read_iteration_timeout_s ({self.read_iteration_timeout}) must be less than or equal to RAY_CGRAPH_get_timeout "
                f"({self.get_timeout})"
            )

    @staticmethod
    def get_current() -> DAGContext:
        """The context of this process."""
        global _current
        with _lock:
            if _current is None:
                _current = DAGContext()
            return _current
