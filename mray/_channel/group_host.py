"""`GroupHost`: what a process provides for its groups; `mray._graph.host.GraphHost` extends it for graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from mray._common.bridge import Cancel
    from mray._ipc.doorbell import Doorbell
    from mray._ipc.segment import Ask


class GroupHost(Protocol):
    """One process of a session, as groups see it."""

    #: mray's id of this process.
    process: str
    #: The prefix of this session's shared memory: ``/mray-<session>-``.
    prefix: str

    def wait_until(self, predicate: Callable[[], bool], timeout: float | None, *, spin: bool = False) -> bool:
        """Sleep (with `spin` after spinning) until the predicate holds, handling messages meanwhile. Returns the predicate's last value."""

    def wake(self) -> None:
        """Make the threads in `wait_until` test their predicates again: another thread has changed state."""

    def doorbell_of(self, process: str) -> Doorbell:
        """The doorbell of a process, this one included; requested from it if it is not known yet."""

    def ask_of(self, process: str) -> Ask:
        """A function that gets segments from the process that offers them, this one included."""

    def watch_actor(self, actor: str, callback: Callable[[Exception], None], doing: str = "") -> Cancel:
        """Call `callback(error)` in the reading thread when the actor's process dies. Returns the function that cancels.

        The error's text includes the sentence `doing`.
        """

    def watch_process(self, process: str, actor: str, callback: Callable[[Exception], None]) -> Cancel:
        """As `watch_actor`, for any process; `actor`: the actor in it, or "". Raises OSError if it has exited already."""

    def failure(self, error: BaseException, name: str) -> bytes:
        """The pickled exception that a caller of `name` gets for an error of user code, with its traceback."""
