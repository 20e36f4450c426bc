"""`GroupHost`: the services of a process for the groups in it; `mray._graph.host.GraphHost` has more, for graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from mray._common.bridge import Cancel
    from mray._ipc.doorbell import Doorbell
    from mray._ipc.segment import Ask


class GroupHost(Protocol):
    """One process of a session, as groups see it."""

    #: Our id of this process.
    process: str
    #: The beginning of the names of shared memory of this session: ``/mray-<session>-``.
    prefix: str

    def wait_until(self, predicate: Callable[[], bool], timeout: float | None, *, spin: bool = False) -> bool:
        """Sleep (with `spin` perhaps spin a little first) until the predicate holds, answering messages meanwhile; returns the
        predicate's last value.
        """

    def wake(self) -> None:
        """Have the threads in `wait_until` test their predicates again: another thread has changed state."""

    def doorbell_of(self, process: str) -> Doorbell:
        """The doorbell of a process, this one included; asks for it if it is not known yet."""

    def ask_of(self, process: str) -> Ask:
        """A function that gets segments from the process that offers them, this one included."""

    def watch_actor(self, actor: str, callback: Callable[[Exception], None], doing: str = "") -> Cancel:
        """Call `callback(error)` in the reading thread when the actor's process dies; returns the function that ends the watch.

        The error's text has the sentence `doing`.
        """

    def watch_process(self, process: str, actor: str, callback: Callable[[Exception], None]) -> Cancel:
        """As `watch_actor`, for any process; `actor`: the actor in it, or "". OSError if it is gone already."""

    def failure(self, error: BaseException, name: str) -> bytes:
        """The pickle of the exception that a caller of `name` gets for an error of user code, with its traceback."""
