"""Samples for `mray metrics` and `mray top`: a session's state as numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

from mray._common.clock import monotonic
from mray._common.ids import worker_id_of
from mray._common.invocations import short_name
from mray.util.state.api import SessionView
from mray.util.state.common import ActorState, GraphState, NodeState, WorkerState


@dataclass
class Sample:
    """A session at one moment."""

    moment: float
    view: SessionView
    node: NodeState
    processes: list[WorkerState]
    graphs: list[GraphState]

    @cached_property
    def by_process(self) -> dict[str, WorkerState]:
        return {process.worker_id: process for process in self.processes}


def take(view: SessionView) -> Sample:
    """Sample a session now; every process is asked once."""
    view.ask("work", "waits", "programs", "graphs", "metrics")
    (node,) = view.records(NodeState)
    processes = [process for process in view.records(WorkerState) if process.is_alive]
    return Sample(monotonic(), view, node, processes, list(view.records(GraphState)))


# ------------------------------------------------------------------------------------------------ metrics
@dataclass(frozen=True)
class MetricFamily:
    """A metric family, as defined by Prometheus."""

    name: str
    kind: str  # gauge, counter or histogram
    doc: str
    labels: tuple[str, ...]
    #: values of the labels, and the number; for a histogram a `Distribution`
    samples: tuple[tuple[tuple[str, ...], Any], ...]


@dataclass(frozen=True)
class Distribution:
    """`buckets`: (upper bound, observations up to it), the last bound infinite."""

    buckets: tuple[tuple[str, float], ...]
    sum: float


def metrics(sample: Sample) -> list[MetricFamily]:
    """Counters are per process: the count of a process ends with it."""
    told, node = sample.view.node, sample.node
    used = {name: taken for name, (taken, _amount) in resources(node).items()}
    total = {name: amount for name, (_taken, amount) in resources(node).items()}
    workers = [process for process in sample.processes if not is_driver(process)]
    states = Counter((short_name(actor.class_name), actor.state) for actor in sample.view.records(ActorState))

    def family(name: str, kind: str, doc: str, labels: str, samples: Iterable[tuple[tuple[str, ...], float]]) -> MetricFamily:
        return MetricFamily(name, kind, doc, tuple(labels.split()), tuple((values, float(number)) for values, number in samples))

    found = [
        family(
            "mray_resources_total",
            "gauge",
            "Resources of the node.",
            "name",
            _keyed(total),
        ),
        family(
            "mray_resources_used",
            "gauge",
            "Resources of actors, tasks and objects.",
            "name",
            _keyed(used),
        ),
        family("mray_actors", "gauge", "Actors by class and state.", "class state", states.items()),
        family("mray_workers", "gauge", "Workers by state.", "state", _keyed(Counter(row.state or "" for row in workers))),
        family("mray_demands", "gauge", "Actors and leases that wait for resources.", "", [((), len(told["demands"]))]),
        family("mray_object_store_limit_bytes", "gauge", "Shared memory for objects.", "", [((), told["object_store_memory"])]),
        family("mray_spilled_bytes", "counter", "Objects that went to disk.", "", [((), told["spilled_bytes"])]),
        family("mray_spilled_objects", "counter", "How many objects went to disk.", "", [((), told["spilled_objects"])]),
        *(
            family(f"mray_gpu_memory_{word}_bytes", "gauge", f"Memory of a GPU: {word}.", "gpu", _keyed(memory))
            for word in ("used", "total")
            for memory in ({gpu["index"]: gpu[f"{word}_bytes"] for gpu in node.gpus or ()},)
        ),
    ]
    for record, rows, names, values_of in (
        (WorkerState, sample.processes, "role pid actor_id class", _process_labels),
        (GraphState, sample.graphs, "graph_id", lambda row: (row.graph_id,)),
    ):
        for each in record.fields():
            if each.metadata["metric"]:
                kind, name = each.metadata["metric"].split()
                samples = ((values_of(row), row[each.name]) for row in rows if row[each.name] is not None)
                found.append(family(name, kind, each.metadata["doc"], names, samples))
    return [*(metric for metric in found if metric.samples), *_of_users(sample)]


def resources(node: NodeState) -> dict[str, tuple[float, float]]:
    """(used, total) of each resource of a node."""
    free = node.resources_available or {}
    return {name: (amount - free.get(name, 0.0), amount) for name, amount in node.resources_total.items() if not name.startswith("node:")}


def _process_labels(row: Any) -> tuple[str, ...]:
    return row.worker_type.lower(), str(row.pid), row.actor_id or "", row.occupant if row.actor_id else ""


def _keyed(amounts: Mapping[str, float]) -> list[tuple[tuple[str, ...], float]]:
    return [((name,), amount) for name, amount in amounts.items()]


def _of_users(sample: Sample) -> Iterator[MetricFamily]:
    """The families of `mray.util.metrics`, under the names that Ray exports: one sample for each process and set of tags."""
    families: dict[tuple[str, str], list[tuple[WorkerState, dict[str, Any]]]] = {}
    for process, answers in sample.view.ask("metrics").items():
        for row in answers.get("metrics") or ():
            families.setdefault((row["name"], row["kind"]), []).append((sample.by_process[worker_id_of(process).hex()], row))
    for (name, kind), members in families.items():
        tags = sorted({key for _process, row in members for given, _value in row["samples"] for key, _tag in given})
        samples = tuple(
            ((*(dict(given).get(tag, "") for tag in tags), process.worker_id, str(process.pid)), _number_of(row, value))
            for process, row in members
            for given, value in row["samples"]
        )
        yield MetricFamily(f"ray_{name}", kind, members[0][1]["description"], (*tags, "WorkerId", "pid"), samples)


def _number_of(row: dict[str, Any], value: Any) -> Any:
    if row["kind"] != "histogram":
        return float(value)
    counts, total = value
    bounds = [*(str(float(bound)) for bound in row["boundaries"]), "+Inf"]
    return Distribution(tuple(zip(bounds, accumulate(counts), strict=True)), total)


def is_driver(process: WorkerState) -> bool:
    """Whether a process is the driver of its session."""
    return process.worker_type == "DRIVER"
