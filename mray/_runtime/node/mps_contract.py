"""`Mps`: what the node asks of NVIDIA's MPS. Implemented in `mray._gpu.mps`, which a node with GPUs loads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol


class Mps(Protocol):
    """The daemons of a session, and their clients among its workers."""

    def answer(self, process: str, what: str, arguments: list[Any], answer: Callable[[bool, object], None]) -> None:
        """Answer a QUERY whose name begins with ``mps_``, perhaps later."""

    def kill(self, process: str) -> None:
        """Kill a worker; a client once its work on the GPU has ended, or its time for that is over."""

    def when_killed(self, processes: Iterable[str], then: Callable[[], None]) -> None:
        """Call back when these workers, for which `kill` was called, have been killed."""

    def end_clients(self) -> None:
        """End the work of all clients on their GPUs, as the session ends. Blocks for some seconds at most."""

    def end_daemons(self) -> None:
        """End all clients and daemons. Blocks for some seconds at most."""
