"""The costs of observing, as ratios within one run.

    python bench/bench_trace.py [ROUNDS]

Prints a line of JSON for each row:

* ``off``: round trips through a graph that was profiled and is no more, against one that never was.
* ``on``: round trips through a graph that is being profiled, against the same one before; and microseconds for each span.
* ``probe``: microseconds for each span of a program whose channels are within the process, so that nothing but the program runs.
* ``calls``: actor calls in flight while their spans are noted down, against before.
* ``timeline``: seconds that `mray.timeline` takes for the calls of this run.
* ``page``: actor calls beside a live page at which nobody looks, against calls without one; its processor time in a second of that, and
  milliseconds of one look at the session with 30 actors: until it is there, of this process, and of all others together.
* ``kept``: processor time of a look, in milliseconds of this process and of all others together, at sessions of 200 actors with 200 kept
  calls and with 200,000: the page's refresh, its 200 newest calls, a filtered listing, the summary. These rows are not ratios of rounds.

Rounds of the two sides take turns; each number is the ratio of medians of the fastest half, since other programs only ever add time.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time, sleep
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import mray
from mray._graph.watch.probes import SpanProbe
from mray._trace.span import Buffer
from mray.cli import live
from mray.dag import InputNode
from mray.util.state import list_tasks, list_workers, summarize_tasks
from mray.util.state._processes import info_of
from mray.util.state.api import look
from tests.unit.graphs import make_graph
from tests.unit.test_program import World

TRIPS = 1000


def seconds(call: Callable[[], object], times: int) -> float:
    """Seconds of one call, of so many."""
    begin = perf_counter()
    for _ in range(times):
        call()
    return (perf_counter() - begin) / times


def best(samples: list[float]) -> float:
    """The median of the faster half."""
    return statistics.median(sorted(samples)[: max(len(samples) // 2, 1)])


def say(row: str, **numbers: float) -> None:
    print(json.dumps({"row": row, **{name: round(number, 4) for name, number in numbers.items()}}), flush=True)


def echo_graph(actor: Any) -> Any:
    with InputNode() as value:
        return actor.echo.bind(value).experimental_compile()


def off_and_on(rounds: int) -> None:
    @mray.remote(num_cpus=0)
    class Echo:
        def echo(self, value: Any) -> Any:
            return value

    untouched, touched = echo_graph(Echo.remote()), echo_graph(Echo.remote())
    with touched.profile(calls=False):
        mray.get(touched.execute(1))

    def trip(graph: Any) -> Callable[[], object]:
        return lambda: mray.get(graph.execute(1))

    for graph in (untouched, touched):
        seconds(trip(graph), TRIPS)
    samples: dict[str, list[float]] = {"never": [], "off": [], "on": []}
    spans = 0
    for _ in range(rounds):
        samples["never"].append(seconds(trip(untouched), TRIPS))
        samples["off"].append(seconds(trip(touched), TRIPS))
        with touched.profile(calls=False) as profile:
            samples["on"].append(seconds(trip(touched), TRIPS))
        spans = len(profile.spans)
    never, off, on = (best(samples[name]) for name in ("never", "off", "on"))
    say("off", ratio=off / never, never_us=never * 1e6, off_us=off * 1e6)
    say("on", ratio=on / off, on_us=on * 1e6, us_per_span=(on - off) * TRIPS / spans * 1e6, spans_per_trip=spans / TRIPS)


def probe(rounds: int) -> None:
    world = World(make_graph(("a", (-1,)), ("a", (0,)), ("a", (1,))))
    (program,) = world.programs
    samples: dict[bool, list[float]] = {False: [], True: []}
    spans = 1.0
    for _ in range(rounds):
        for looked_on in (False, True):
            buffer = Buffer()
            program.probe(SpanProbe(buffer, "graph") if looked_on else None)
            world.execute(0)
            world.execute(0)
            before = len(buffer.spans)
            samples[looked_on].append(seconds(lambda: world.execute(0), TRIPS))
            if looked_on:
                spans = (len(buffer.spans) - before) / TRIPS
            for actor in world.actors.values():
                actor.calls.clear()
    say("probe", us_per_span=(best(samples[True]) - best(samples[False])) / spans * 1e6, spans_per_execution=spans)


def calls(rounds: int) -> None:
    @mray.remote(num_cpus=0)
    class Echo:
        def echo(self, value: Any) -> Any:
            return value

    actor = Echo.remote()
    graph = echo_graph(actor)
    mray.get(graph.execute(1))

    def batch() -> None:
        mray.get([actor.echo.remote(1) for _ in range(TRIPS)])

    batch()
    samples: dict[str, list[float]] = {"off": [], "on": []}
    for _ in range(rounds):
        samples["off"].append(seconds(batch, 1) / TRIPS)
        with graph.profile():
            samples["on"].append(seconds(batch, 1) / TRIPS)
    off, on = best(samples["off"]), best(samples["on"])
    say("calls", ratio=on / off, off_us=off * 1e6, on_us=on * 1e6)
    begin = perf_counter()
    events = mray.timeline()
    say("timeline", seconds=perf_counter() - begin, events=len(events or ()))


def page(rounds: int) -> None:
    @mray.remote(num_cpus=0)
    class Echo:
        def echo(self, value: Any) -> Any:
            return value

    actors = [Echo.remote() for _ in range(30)]
    mray.get([each.echo.remote(1) for each in actors])
    samples: dict[bool, list[float]] = {False: [], True: []}
    idle: list[float] = []
    for _ in range(rounds):
        for served in (False, True):
            serving = live.LivePage() if served else None
            samples[served].append(seconds(lambda: mray.get(actors[0].echo.remote(1)), TRIPS))
            if serving is not None:
                before = process_time()
                sleep(1)
                idle.append(process_time() - before)
                serving.close()
    without, served = best(samples[False]), best(samples[True])
    say("page", ratio=served / without, us_per_idle_second=best(idle) * 1e6)
    others = [row.pid for row in list_workers() if row.is_alive and row.worker_type == "WORKER"]

    def spent() -> float:
        return sum(info_of(pid).get("cpu_seconds", 0.0) for pid in others)

    query = {"session": live.directories()[0], "also": ""}
    wall, own, beside = perf_counter(), process_time(), spent()
    for _ in range(rounds):
        live._ANSWERS["/look"](query)
    wall, own, beside = perf_counter() - wall, process_time() - own, spent() - beside
    say("look", ms=wall / rounds * 1e3, ms_of_this_process=own / rounds * 1e3, ms_of_others=beside / rounds * 1e3, processes=len(others))


def kept(rounds: int) -> None:
    @mray.remote(num_cpus=0)
    class Echo:
        def echo(self, value: Any) -> Any:
            return value

    actors = [Echo.remote() for _ in range(200)]
    mray.get([each.echo.remote(1) for each in actors])
    view = look()
    others = [*view.pids.values(), view.node["node_pid"]]
    query = {"session": view.directory, "also": ""}
    looks: dict[str, Callable[[], object]] = {
        "refresh": lambda: live._ANSWERS["/look"](query),
        "tasks": lambda: live._ANSWERS["/tasks"](query),
        "filter": lambda: list_tasks(filters=[("name", "=", "Echo.echo"), ("state", "=", "FINISHED")]),
        "summary": summarize_tasks,
    }

    def spent() -> float:
        return sum(info_of(pid).get("cpu_seconds", 0.0) for pid in others)

    costs: dict[str, list[float]] = {name: [] for name in looks}
    for calls_of_each in (0, 1000):
        for _ in range(calls_of_each // 100):
            mray.get([each.echo.remote(1) for each in actors for _ in range(100)])
        for name, one in looks.items():
            one()
            before = spent()
            for _ in range(rounds):
                one()
            costs[name].append((spent() - before) / rounds * 1e3)
    for name, (few, many) in costs.items():
        say(f"kept, {name}", ms_200=few, ms_200_000=many, ratio=many / few)


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    probe(rounds)
    mray.init(num_cpus=2, logging_level="ERROR")
    try:
        off_and_on(rounds)
        calls(rounds)
        page(rounds)
        kept(rounds)
    finally:
        mray.shutdown()


if __name__ == "__main__":
    main()
