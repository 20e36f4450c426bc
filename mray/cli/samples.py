"""Samples for `mray metrics` and `mray top`: one look at a session as numbers. No output here."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from mray._common import messages as m
from mray._common.clock import monotonic
from mray.util.state._gather import View, actors, graphs, occupants, worker_id
from mray.util.state._processes import facts_of

#: Seconds that nvidia-smi may take.
_GPU_PATIENCE = 5.0


@dataclass
class Process:
    """One process of the session."""

    process: str
    role: str
    pid: int
    #: Name of its actor's class, or what it was given to.
    occupant: str
    #: driver; of an actor its state, and while it is alive busy, idle, or graph (it has no call, and a graph to run); else the worker's.
    state: str = ""
    actor_id: str = ""
    name: str = ""
    #: The call that it runs now.
    task: str = ""
    queued: int = 0
    served: int = 0
    cpu_seconds: float = 0.0
    rss_bytes: int = 0
    object_bytes: int = 0
    gpu_bytes: int = 0
    #: A description of its wait.
    waits: list[str] = field(default_factory=list)


@dataclass
class Sample:
    """A session at one moment."""

    moment: float
    view: View
    processes: list[Process]
    graphs: list[Any]
    gpus: list[dict[str, Any]]
    #: By process: what `mray.util.metrics` has counted in it.
    measured: dict[str, list[dict[str, Any]]]

    @property
    def by_process(self) -> dict[str, Process]:
        return {process.process: process for process in self.processes}


def take(view: View) -> Sample:
    """Look at a session now; asks every process once for what it does and once for its graphs."""
    told = view.ask("work", "waits", "metrics")
    actors = {actor["process"]: actor for actor in view.node["actors"] if actor["process"] and actor["state"] != "dead"}
    states = {worker["process"]: worker["state"] for worker in view.node["workers"]}
    occupied = occupants(view)
    memory = gpu_memory()
    names = {actor["actor_id"].hex(): actor["name"] or actor["class_name"] for actor in view.node["actors"]}
    processes = []
    for process in view.in_order():
        row, answers = view.processes[process], told.get(process, {})
        work, actor = answers.get("work") or {}, actors.get(process)
        facts = facts_of(row["pid"])
        processes.append(
            Process(
                process=process,
                role=row["role"],
                pid=row["pid"],
                occupant=str(actor["class_name"] if actor is not None else occupied.get(process) or states.get(process, row["role"])),
                state=_state(row["role"], states.get(process, ""), actor, work),
                actor_id=actor["actor_id"].hex() if actor is not None else "",
                name=actor["name"] if actor is not None else "",
                task=work.get("task", ""),
                queued=work.get("queued", 0),
                served=work.get("served", 0),
                cpu_seconds=facts.get("cpu_seconds", 0.0),
                rss_bytes=facts.get("rss_bytes", 0),
                object_bytes=row["bytes"],
                gpu_bytes=memory.get(row["pid"], 0),
                waits=[text for wait in answers.get("waits") or () for text in _waits(wait, names, view)],
            )
        )
    measured = {process: answers.get("metrics") or [] for process, answers in told.items()}
    rows = list(graphs(view))
    in_graphs = {actor for row in rows for actor in row.actors}
    for each in processes:
        if each.state == "idle" and each.actor_id in in_graphs:
            each.state = "graph"
    return Sample(monotonic(), view, processes, rows, gpus(), measured)


def _state(role: str, of_worker: str, actor: dict[str, Any] | None, work: dict[str, Any]) -> str:
    if actor is None:
        return of_worker or role
    return str(actor["state"]) if actor["state"] != "alive" else "busy" if work.get("task") else "idle"


def _waits(wait: dict[str, Any], names: dict[str, str], view: View) -> Iterator[str]:
    for debt in wait["on"]:
        actor, pid = names.get(debt["actor_id"].hex()), view.pids.get(debt["process"])
        where = f" of {actor}" if actor and not debt["task"].startswith(actor) else ""
        what = debt["task"] or f"object {debt['object_id'].hex()[:8]}"
        yield f"{what}{where}{f' (pid {pid})' if pid else ', which has no worker yet'}"
    if wait["count"] > len(wait["on"]):
        yield f"and {wait['count'] - len(wait['on'])} more"


# --------------------------------------------------------------------------------------------------- GPUs
def _nvidia_smi(query: str) -> list[list[str]]:
    """The rows of a query; none where there is no NVIDIA driver."""
    if not os.path.exists("/proc/driver/nvidia") and not _on_path("nvidia-smi"):
        return []
    try:
        done = subprocess.run(
            ["nvidia-smi", query, "--format=csv,noheader,nounits"], capture_output=True, text=True, timeout=_GPU_PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [[part.strip() for part in line.split(",")] for line in done.stdout.splitlines()] if not done.returncode else []


def _on_path(program: str) -> bool:
    return any(os.access(os.path.join(folder, program), os.X_OK) for folder in os.get_exec_path())


def gpus() -> list[dict[str, Any]]:
    """``index, name, used_bytes, total_bytes, busy`` (percent) of each GPU of the machine."""
    rows = _nvidia_smi("--query-gpu=index,name,memory.used,memory.total,utilization.gpu")
    return [
        {"index": row[0], "name": row[1], "used_bytes": _mebibytes(row[2]), "total_bytes": _mebibytes(row[3]), "busy": _number(row[4])}
        for row in rows
        if len(row) == 5
    ]


def gpu_memory() -> dict[int, int]:
    """Bytes of GPU memory by pid, where the driver tells (inside a container it may know other pids)."""
    found: dict[int, int] = {}
    for row in _nvidia_smi("--query-compute-apps=pid,used_memory"):
        if len(row) == 2 and row[0].isdigit():
            found[int(row[0])] = found.get(int(row[0]), 0) + _mebibytes(row[1])
    return found


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:  # "[N/A]"
        return 0.0


def _mebibytes(text: str) -> int:
    return int(_number(text) * 2**20)


# ------------------------------------------------------------------------------------------------ metrics
@dataclass(frozen=True)
class Metric:
    """One family of numbers, in Prometheus's words."""

    name: str
    kind: str  # gauge, counter or histogram
    doc: str
    labels: tuple[str, ...]
    #: Values of the labels, and the number; of a histogram a `Distribution`.
    samples: tuple[tuple[tuple[str, ...], Any], ...]


@dataclass(frozen=True)
class Distribution:
    """The counts of a histogram: (upper bound, observations up to it), the last bound infinite, and their sum."""

    buckets: tuple[tuple[str, float], ...]
    sum: float


def metrics(sample: Sample) -> list[Metric]:
    """A sample as families of numbers. Counters begin with their process: one that is gone takes its count along."""
    node, processes = sample.view.node, sample.processes
    who = ("role", "pid", "actor_id", "class")
    label = {p.process: (p.role, str(p.pid), p.actor_id, p.occupant if p.actor_id else "") for p in processes}
    free = node["available"]
    states: dict[tuple[str, str], int] = {}
    for actor in actors(sample.view):
        states[actor.class_name, actor.state] = states.get((actor.class_name, actor.state), 0) + 1
    workers: dict[str, int] = {}
    for worker in node["workers"]:
        workers[worker["state"]] = workers.get(worker["state"], 0) + 1
    resources = {name: amount for name, amount in node["resources"].items() if not name.startswith("node:")}
    limit = node["object_store_memory"]

    def per_process(name: str, kind: str, doc: str, value: Any) -> Metric:
        return Metric(name, kind, doc, who, tuple((label[p.process], float(value(p))) for p in processes))

    def per_graph(name: str, kind: str, doc: str, column: str) -> Metric:
        return Metric(name, kind, doc, ("graph_id",), tuple(((row.graph_id,), float(row[column])) for row in sample.graphs))

    found = [
        Metric("mray_resources_total", "gauge", "Resources of the node.", ("name",), tuple(((n,), float(a)) for n, a in resources.items())),
        Metric(
            "mray_resources_used",
            "gauge",
            "Resources of actors and tasks.",
            ("name",),
            tuple(((name,), float(amount - free.get(name, 0.0))) for name, amount in resources.items()),
        ),
        Metric("mray_actors", "gauge", "Actors by class and state.", ("class", "state"), tuple((k, float(v)) for k, v in states.items())),
        Metric("mray_workers", "gauge", "Workers by state.", ("state",), tuple(((k,), float(v)) for k, v in workers.items())),
        Metric("mray_demands", "gauge", "Actors and leases that wait for resources.", (), (((), float(len(node["demands"]))),)),
        Metric("mray_object_store_limit_bytes", "gauge", "Shared memory that objects may take.", (), (((), float(limit)),)),
        Metric("mray_spilled_bytes", "counter", "Objects that went to disk.", (), (((), float(node["spilled_bytes"])),)),
        Metric("mray_spilled_objects", "counter", "How many objects went to disk.", (), (((), float(node["spilled_objects"])),)),
        per_process("mray_object_store_bytes", "gauge", "Shared memory that a process holds for objects.", lambda p: p.object_bytes),
        per_process("mray_calls", "counter", "Calls that a worker has run.", lambda p: p.served),
        per_process("mray_calls_queued", "gauge", "Calls that wait at a worker.", lambda p: p.queued),
        per_process("mray_cpu_seconds", "counter", "CPU time of a process.", lambda p: p.cpu_seconds),
        per_process("mray_resident_bytes", "gauge", "Resident memory of a process.", lambda p: p.rss_bytes),
        per_graph("mray_graph_executions_submitted", "counter", "Executions of a compiled graph that were submitted.", "submitted"),
        per_graph("mray_graph_executions_finished", "counter", "Executions of a compiled graph whose results were read.", "finished"),
        per_graph("mray_graph_in_flight", "gauge", "Executions of a compiled graph in flight.", "in_flight"),
    ]
    if sample.gpus:
        used, total = ([((gpu["index"],), float(gpu[column])) for gpu in sample.gpus] for column in ("used_bytes", "total_bytes"))
        found += [
            Metric("mray_gpu_memory_used_bytes", "gauge", "Memory of a GPU in use.", ("gpu",), tuple(used)),
            Metric("mray_gpu_memory_total_bytes", "gauge", "Memory of a GPU.", ("gpu",), tuple(total)),
            per_process("mray_process_gpu_memory_bytes", "gauge", "GPU memory of a process.", lambda p: p.gpu_bytes),
        ]
    return [*found, *_of_users(sample)]


def _of_users(sample: Sample) -> Iterator[Metric]:
    """The families of `mray.util.metrics`, under the names that Ray exports them by: one sample for each process and set of tags."""
    families: dict[tuple[str, str], list[tuple[Process, dict[str, Any]]]] = {}
    for process, rows in sample.measured.items():
        for row in rows:
            families.setdefault((row["name"], row["kind"]), []).append((sample.by_process[process], row))
    for (name, kind), members in families.items():
        tags = sorted({key for _process, row in members for given, _value in row["samples"] for key, _tag in given})
        samples = tuple(
            ((*(dict(given).get(tag, "") for tag in tags), worker_id(process.process), str(process.pid)), _number_of(row, value))
            for process, row in members
            for given, value in row["samples"]
        )
        yield Metric(f"ray_{name}", kind, members[0][1]["description"], (*tags, "WorkerId", "pid"), samples)


def _number_of(row: dict[str, Any], value: Any) -> Any:
    if row["kind"] != "histogram":
        return float(value)
    counts, total = value
    bounds = [*(str(float(bound)) for bound in row["boundaries"]), "+Inf"]
    return Distribution(tuple(zip(bounds, accumulate(counts), strict=True)), total)


def is_driver(process: Process) -> bool:
    """Whether it is the driver of its session."""
    return process.role == m.ROLE_DRIVER
