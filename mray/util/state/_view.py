"""A session at one moment: the node's snapshot, and what its processes say. In the querying process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from mray._common import messages as m
from mray._common.ids import worker_id_of
from mray._common.invocations import short_name
from mray._observe.observer import Interview, ask_node, ask_processes
from mray._observe.process_snapshot import Sections
from mray.util.state.common import StateSchema

_Record = TypeVar("_Record", bound=StateSchema)
Row = dict[str, Any]


@dataclass
class View:
    """The node's snapshot, and the answers of its processes when asked."""

    directory: str
    timeout: float
    detail: bool = True
    #: A text for each process that did not answer.
    missing: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.node: dict[str, Any] = ask_node(self.directory, "snapshot", self.timeout)
        self.processes: dict[str, Row] = {process["process"]: process for process in self.node["processes"]}
        #: Pids by process, also of ended ones.
        self.pids = {dead["process"]: dead["pid"] for dead in self.node["dead_workers"]}
        self.pids.update({process: row["pid"] for process, row in self.processes.items()})
        info = self.node["info"]
        self.node_id: str = info["node_id"]
        self.ip: str = info["node_ip_address"]
        #: Actor id -> its name, or else its class's.
        self.names = {actor["actor_id"].hex(): actor["name"] or short_name(actor["class_name"]) for actor in self.node["actors"]}
        self._homes: dict[str, str] = {worker["process"]: worker["actor_id"] for worker in self.node["workers"]}
        self._asked: set[str] = set()
        self._told: dict[str, dict[str, Any]] = {}
        self._silent: dict[str, str] = {}

    def ask(self, *sections: str) -> dict[str, dict[str, Any]]:
        """process -> section -> its answer; without those that did not answer. Asked once by each view."""
        new = [section for section in sections if section not in self._asked]
        self._asked.update(new)
        well = [process for process in self.processes if process not in self._silent] if new else ()
        wanted: Sections = {section: {} for section in new}
        with Interview(self.directory) as interview:
            for process, answers in self.question(interview, dict.fromkeys(well, wanted)).items():
                self._told.setdefault(process, {}).update(answers)
        return self._told

    def question(self, interview: Interview, wanted: Mapping[str, Sections]) -> dict[str, dict[str, Any]]:
        """process -> section -> its answer; without those that did not answer, which are not asked again."""
        told: dict[str, dict[str, Any]] = {}
        asked = {process: sections for process, sections in wanted.items() if sections and process not in self._silent}
        for process, answers in interview.ask(asked, self.timeout).items():
            if isinstance(answers, str):
                self._silent[process] = answers
                if answers != "has ended":  # it has no rows
                    self.missing.append(f"the {self.processes[process]['role']} of pid {self.pids[process]} {answers}")
                continue
            for section, (done, rows) in answers.items():
                if done:
                    told.setdefault(process, {})[section] = rows
                else:
                    self.missing.append(f"{section} of pid {self.pids[process]}: {rows}")
        return told

    def ask_one(self, process: str, section: str) -> Any:
        """A text if it does not answer."""
        if process in self._silent:
            return self._silent[process]
        answers = ask_processes(self.directory, [process], [section], self.timeout)[process]
        return answers if isinstance(answers, str) else answers[section][1]

    def rows_of(self, told: dict[str, dict[str, Any]], process: str, section: str, limit: int | None = None) -> list[Row]:
        found = told.get(process, {}).get(section) or {"total": 0, "rows": []}
        if found["total"] > len(found["rows"]) and (limit is None or len(found["rows"]) < limit):
            self.notes.append(f"pid {self.pids[process]} has {found['total']} {section} and tells of {len(found['rows'])}")
        return found["rows"]  # type: ignore[no-any-return]

    def actor_in(self, process: str) -> str:
        """The id of the actor that lives in a process; empty for none."""
        return self._homes.get(process, "")

    def is_worker(self, process: str) -> bool:
        return bool(self.processes[process]["role"] == m.ROLE_WORKER)

    def in_order(self) -> list[str]:
        return sorted(self.processes, key=lambda process: self.processes[process]["role"] != m.ROLE_DRIVER)


def made(record: type[_Record], row: Row, **values: Any) -> _Record:
    columns = record.__dataclass_fields__
    return record(**{**{name: value for name, value in row.items() if name in columns}, **values})


def worker_id(process: str) -> str:
    """A process's id for users; empty for none."""
    return worker_id_of(process).hex() if process else ""
