"""`EndedSession`: a session that has ended, by the logs and records that it has left (see `mray._ipc.kept_sessions`)."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from mray._common.kept import os
from mray._ipc.kept_sessions import LAST, NODE, kept_in, read_records
from mray._ipc.sessions import is_private, session_parents


class EndedSession:
    """The directory has the log files in its folder ``logs``."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    @classmethod
    def at(cls, directory: str) -> EndedSession | None:
        """None unless this is the directory of a session that has ended."""
        directory = directory.rstrip("/")
        return cls(directory) if os.path.basename(os.path.dirname(directory)) == LAST else None

    @classmethod
    def all(cls) -> list[EndedSession]:
        """Those of this user, the last one last."""
        found = [each for parent in filter(is_private, session_parents()) for each in kept_in(os.path.join(parent, LAST))]
        return [cls(directory) for _end, directory in sorted(found)]

    @property
    def name(self) -> str:
        return os.path.basename(self.directory)

    @cached_property
    def _records(self) -> dict[str, dict[str, Any]]:
        return read_records(self.directory)

    @property
    def node(self) -> dict[str, Any]:
        """The record of the node (`mray._runtime.node.last_records`); empty if it was killed."""
        return self._records.get(NODE, {})

    @property
    def processes(self) -> dict[str, dict[str, Any]]:
        """The records of the driver (`mray._runtime.session.session`) and of workers (`mray._runtime.worker.worker`)."""
        return {process: record for process, record in self._records.items() if process != NODE}
