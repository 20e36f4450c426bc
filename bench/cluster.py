"""Ray between machines, mray within, against Ray alone: on a cluster of two machines, both of them this one.

python bench/cluster.py [--steps 300] [--rounds 7]

Needs Ray beside mray in one environment. On each machine of the cluster a host (an actor of Ray) takes a value through two stages and back,
many times, each step waiting for the one before. The cost of a step, in four ways, is measured inside the host; the ways take turns, and
the machines too, so that a busy machine disturbs all of them alike. The last rows are about the driver: the cost of reaching Ray through
mray, by the same graph and the same actor.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

# Ray reads these when it is imported: ten seconds are little on a busy machine, and its workers, with all that they start, would come
# after every other process.
os.environ.setdefault("RAY_CGRAPH_get_timeout", "300")
os.environ.setdefault("RAY_worker_niceness", "0")

import numpy as np
import ray
from ray.cluster_utils import Cluster
from ray.dag import InputNode as RaysInput
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as RaysPlace

import mray
from mray.dag import InputNode
from mray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

WAYS = ("Ray: actor calls", "Ray: compiled graph", "mray within: actor calls", "mray within: compiled graph")
VALUES = {"a number": 1, "an array of 100 KB": np.zeros(12_500)}


class Stage:
    """The ways of a value."""

    def step(self, value: Any) -> Any:
        return value + 1


def timed(step: Callable[[Any], Any], value: Any, steps: int) -> float:
    """Microseconds of one step."""
    assert np.max(step(value)) == np.max(value) + 2
    begun = time.perf_counter()
    for _ in range(steps):
        step(value)
    return (time.perf_counter() - begun) / steps * 1e6


class RayHost:
    """Ray alone: the stages are actors of the cluster, on the host's machine."""

    def __init__(self) -> None:
        here = RaysPlace(ray.get_runtime_context().get_node_id(), soft=False)
        stage = ray.remote(num_cpus=0, scheduling_strategy=here)(Stage)
        self.first, self.second = stage.remote(), stage.remote()
        with RaysInput() as given:
            self.graph = self.second.step.bind(self.first.step.bind(given)).experimental_compile()

    def calls(self, value: Any, steps: int) -> float:
        return timed(lambda each: ray.get(self.second.step.remote(self.first.step.remote(each))), value, steps)

    def compiled(self, value: Any, steps: int) -> float:
        return timed(lambda each: ray.get(self.graph.execute(each)), value, steps)


class MrayHost:
    """Ray between, mray within: the stages are actors of a session in the host."""

    def __init__(self) -> None:
        mray.init(address="local", num_cpus=2, logging_level="ERROR")
        stage = mray.remote(num_cpus=0)(Stage)
        self.first, self.second = stage.remote(), stage.remote()
        with InputNode() as given:
            self.graph = self.second.step.bind(self.first.step.bind(given)).experimental_compile()

    def calls(self, value: Any, steps: int) -> float:
        return timed(lambda each: mray.get(self.second.step.remote(self.first.step.remote(each))), value, steps)

    def compiled(self, value: Any, steps: int) -> float:
        return timed(lambda each: mray.get(self.graph.execute(each)), value, steps)


def start_cluster(directory: str) -> Cluster:
    """Two machines that no other program of this one finds."""
    with mock.patch("ray._private.utils.write_ray_address"):
        cluster = Cluster()
        cluster.add_node(num_cpus=4, include_dashboard=False, temp_dir=directory)
        cluster.add_node(num_cpus=4, resources={"second": 1})
    return cluster


def within_machines(steps: int, rounds: int) -> None:
    """Print what a step costs inside each machine."""
    machines = [node["NodeID"] for node in mray.nodes() if node["Alive"]]
    hosts: list[tuple[Any, Any, Any]] = []  # how to get, Ray's, mray's
    for machine in machines:
        place = RaysPlace(machine, soft=False)
        rays = ray.remote(num_cpus=0, scheduling_strategy=place)(RayHost).remote()
        ours = mray.remote(num_cpus=0)(MrayHost).options(scheduling_strategy=NodeAffinitySchedulingStrategy(machine, soft=False)).remote()
        hosts.append((machine, rays, ours))
    for name, value in VALUES.items():
        times: dict[str, list[float]] = {way: [] for way in WAYS}
        for _ in range(rounds):
            for _machine, rays, ours in hosts:
                measured = (
                    ray.get(rays.calls.remote(value, steps)),
                    ray.get(rays.compiled.remote(value, steps)),
                    mray.get(ours.calls.remote(value, steps)),
                    mray.get(ours.compiled.remote(value, steps)),
                )
                for way, microseconds in zip(WAYS, measured, strict=True):
                    times[way].append(microseconds)
        print(f"inside of each of {len(machines)} machines, two stages, {name}:")
        best = statistics.median(times[WAYS[-1]])
        for way in WAYS:
            middle = statistics.median(times[way])
            spread = f"({min(times[way]):.1f} to {max(times[way]):.1f})"
            print(f"  {way:30} {middle:9.1f} us a step {spread}, {middle / best:6.1f} times the last")


def through_mray(steps: int, rounds: int) -> None:
    """Print what the driver pays for reaching Ray through mray: the same graph and actor, both ways in turn."""
    actor = mray.remote(num_cpus=0)(Stage).remote()
    rays_actor = actor._carried
    with InputNode() as given:
        graph = actor.step.bind(given).experimental_compile()
    rays_graph = graph._graph
    ways: dict[str, Callable[[], Any]] = {
        "compiled graph, Ray": lambda: ray.get(rays_graph.execute(1)),
        "compiled graph, mray on Ray": lambda: mray.get(graph.execute(1)),
    }
    report_pair("the driver, a graph of one actor", ways, steps, rounds)
    graph.teardown()
    ways = {
        "actor call, Ray": lambda: ray.get(rays_actor.step.remote(1)),
        "actor call, mray on Ray": lambda: mray.get(actor.step.remote(1)),
    }
    report_pair("the driver, calls of one actor", ways, steps, rounds)


def report_pair(title: str, ways: dict[str, Callable[[], Any]], steps: int, rounds: int) -> None:
    """Print medians of single calls, and the median of the differences of neighbouring rounds."""
    times: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds * 5):
        for way, call in ways.items():
            samples = []
            for _ in range(max(steps // 5, 20)):
                begun = time.perf_counter()
                call()
                samples.append((time.perf_counter() - begun) * 1e6)
            times[way].append(statistics.median(samples))
    print(f"{title}:")
    for way, found in times.items():
        print(f"  {way:30} {statistics.median(found):9.1f} us")
    first, second = times.values()
    print(f"  {'the difference':30} {statistics.median(b - a for a, b in zip(first, second, strict=True)):9.1f} us")


def main() -> None:
    """Start the cluster, measure, end it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rb", dir="/tmp", ignore_cleanup_errors=True) as directory:
        cluster = start_cluster(directory)
        try:
            with mray.init(f"ray:{cluster.address}", logging_level="ERROR", log_to_driver=False):
                print(f"Ray {ray.__version__}, mray {mray.__version__}")
                within_machines(given.steps, given.rounds)
                through_mray(given.steps, given.rounds)
        finally:
            cluster.shutdown()


if __name__ == "__main__":
    main()
