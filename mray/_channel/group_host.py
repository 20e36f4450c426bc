"""`GroupHost`: what a process provides for its groups."""

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
    #: Prefix of this session's shared memory: ``/mray-<session>-``.
    prefix: str

    def wait_until(self, predicate: Callable[[], bool], timeout: float | None, *, spin: bool = False) -> bool:
        """Sleep (with `spin` after spinning) until the predicate holds, handling messages meanwhile. Returns the predicate's last value."""

    def wake(self) -> None:
        """Make the threads in `wait_until` test their predicates again."""

    def doorbell_of(self, process: str) -> Doorbell:
        """The doorbell of a process, this one included; requested from it if unknown."""

    def ask_of(self, process: str) -> Ask:
        """Gets segments from the process that offers them, this one included."""

    def then(self, actor: str, callback: Callable[[Exception], None], *, process: str = "", doing: str = "") -> Cancel:
        """Call `callback(error)` once, in the reading thread, when the process of an actor, in hex digits, has ended.

        `process`: that one, whether an actor lives in it or not (""); OSError if it has ended already. Without it, the one in which the
        actor lives when known; `doing` is a sentence for the error.
        """

    def failure(self, error: BaseException, name: str) -> bytes:
        """The pickled exception that a caller of `name` gets for an error of user code."""
