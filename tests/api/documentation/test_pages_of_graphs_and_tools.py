"""Programs for the pages of Ray's documentation on graphs, on its small libraries and on observability.

Runs on mray and on real Ray. `test_the_pages` looks whether the programs use what their pages present.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging

import pytest

#: The programs of a page, by the page's path in the documentation.
PAGES = {
    "ray-dag": "bind execute InputNode MultiOutputNode remote",
    "compiled-graph/quickstart": "bind InputNode MultiOutputNode experimental_compile execute teardown ActorDiedError kill"
    " enable_asyncio execute_async",
    "compiled-graph/troubleshooting": "experimental_compile teardown execute _submit_timeout _buffer_size_bytes _max_inflight_executions"
    " RayChannelTimeoutError"
    " DAGContext get_current submit_timeout",
    "compiled-graph/visualization": "experimental_compile visualize filename format view channel_details",
    "compiled-graph/profiling": "InputNode shape experimental_compile",
    "more-libs/multiprocessing": "Pool processes map apply imap imap_unordered starmap map_async chunksize ray_remote_args initializer",
    "more-libs/joblib": "register_ray parallel_backend ray_remote_args",
    "observability/add-app-metrics": "Counter Gauge Histogram description tag_keys boundaries set_default_tags inc set observe tags",
    "observability/configure-logging": "LoggingConfig encoding log_level additional_log_standard_attrs log_to_driver"
    " logging_config __repr__",
    "observability/tqdm": "tqdm desc total update close",
    "observability/optimize-performance": "timeline filename",
    "observability/cli-sdk": "list_actors list_tasks list_nodes list_objects list_workers list_placement_groups list_jobs"
    " get_actor get_task"
    " get_node summarize_actors summarize_tasks summarize_objects filters detail limit id",
}


def module(ray, name):
    return importlib.import_module(f"{ray.__name__}.{name}")


@pytest.fixture
def echo(ray_session):
    @ray_session.remote(num_cpus=0)
    class Echo:
        def __init__(self, amount=1):
            self.amount = amount

        def echo(self, value):
            return value

        def add(self, value):
            self.amount += value
            return self.amount

    return Echo


def test_page_ray_dag(ray_session, echo):
    ray = ray_session
    InputNode, MultiOutputNode = ray.dag.InputNode, ray.dag.MultiOutputNode

    @ray.remote(num_cpus=0)
    def add(first, second=1):
        return first + second

    one = add.bind(1, second=2)
    assert ray.get(add.bind(one, second=add.bind(one)).execute()) == 7
    with InputNode() as given:
        both = MultiOutputNode([add.bind(given["x"]), add.bind(given["y"], second=given["x"])])
    assert ray.get(both.execute({"x": 1, "y": 10})) == [2, 11]
    made = echo.bind(5)
    made.add.bind(1)
    assert ray.get(made.add.bind(2).execute()) in (7, 8)
    kept = echo.remote(0)
    with InputNode() as given:
        graph = kept.add.bind(given)
    assert [ray.get(graph.execute(2)), ray.get(graph.execute(3)), ray.get(kept.add.remote(0))] == [2, 5, 5]


def test_page_compiled_graph_quickstart(ray_session, echo):
    ray = ray_session
    first, second = echo.remote(), echo.remote()
    with ray.dag.InputNode() as given:
        chain = second.echo.bind(first.echo.bind(given))
    graph = chain.experimental_compile()
    assert [ray.get(graph.execute(word)) for word in ("a", "b")] == ["a", "b"]
    graph.teardown()

    actors = [echo.remote() for _ in range(3)]
    with ray.dag.InputNode() as given:
        wide = ray.dag.MultiOutputNode([actor.echo.bind(given) for actor in actors])
    graph = wide.experimental_compile()
    assert ray.get(graph.execute(1)) == [1, 1, 1]
    ray.kill(actors[0])
    with pytest.raises(ray.exceptions.ActorDiedError):
        while True:
            ray.get(graph.execute(2))
    assert ray.get([actor.echo.remote("alive") for actor in actors[1:]]) == ["alive"] * 2

    async def ask():
        with ray.dag.InputNode() as given:
            node = first.echo.bind(given)
        graph = node.experimental_compile(enable_asyncio=True)
        futures = [await graph.execute_async(number) for number in range(3)]
        found = await asyncio.gather(*futures)
        graph.teardown()
        return found

    assert asyncio.run(ask()) == [0, 1, 2]


def test_page_compiled_graph_troubleshooting(ray_session, echo):
    ray = ray_session
    numpy = pytest.importorskip("numpy")
    assert ray.dag.DAGContext.get_current().submit_timeout > 0
    actor = echo.remote()
    with ray.dag.InputNode() as given:
        node = actor.echo.bind(given)
    graph = node.experimental_compile(_submit_timeout=30, _buffer_size_bytes=100_000, _max_inflight_executions=5)
    refs = [graph.execute(numpy.full((5, 128), number)) for number in range(5)]
    for number, ref in enumerate(refs):
        value = ray.get(ref)
        assert value[0, 0] == number
        del value
    graph.teardown()
    with ray.dag.InputNode() as given:
        node = actor.echo.bind(given)
    graph = node.experimental_compile()
    assert ray.get(graph.execute("again")) == "again"
    graph.teardown()
    assert issubclass(ray.exceptions.RayChannelTimeoutError, TimeoutError)


def test_page_compiled_graph_visualization(ray_session, echo, tmp_path):
    pytest.importorskip("graphviz")
    ray = ray_session
    with ray.dag.InputNode() as given:
        node = ray.dag.MultiOutputNode([echo.remote().echo.bind(given), echo.remote().add.bind(given)])
    graph = node.experimental_compile()
    drawn = graph.visualize(filename=str(tmp_path / "graph"), format="dot", view=False, channel_details=True)
    graph.teardown()
    assert "echo" in drawn
    assert "add" in drawn


def test_page_compiled_graph_profiling(ray_session, echo):
    ray = ray_session
    with ray.dag.InputNode() as given:
        node = ray.dag.MultiOutputNode([echo.remote().echo.bind(given[0]), echo.remote().echo.bind(given.shape)])
    graph = node.experimental_compile()
    assert ray.get(graph.execute(3, shape=(10,))) == [3, (10,)]
    graph.teardown()


def test_page_more_libs_multiprocessing(ray_session):
    Pool = module(ray_session, "util.multiprocessing").Pool
    import os

    def add(first, second=10):
        return first + second

    def square(number):
        return number * number + int(os.environ.get("OFFSET", 0))

    def set_offset(number):
        os.environ["OFFSET"] = str(number)

    with Pool(processes=2, initializer=set_offset, initargs=(1,), ray_remote_args={"num_cpus": 1}) as pool:
        assert pool.map(square, range(4), chunksize=2) == [1, 2, 5, 10]
        assert pool.apply(add, (1,), {"second": 2}) == 3
        assert list(pool.imap(square, range(3))) == [1, 2, 5]
        assert sorted(pool.imap_unordered(square, range(3))) == [1, 2, 5]
        assert pool.starmap(add, [(1, 2), (3, 4)]) == [3, 7]
        assert pool.map_async(square, [3]).get(timeout=30) == [10]


def test_page_more_libs_joblib(ray_session):
    joblib = pytest.importorskip("joblib")
    module(ray_session, "util.joblib").register_ray()
    with joblib.parallel_backend("ray", n_jobs=2, ray_remote_args={"resources": {"custom": 0.5}}):
        found = joblib.Parallel()(joblib.delayed(lambda number: number + 1)(number) for number in range(5))
    assert found == [1, 2, 3, 4, 5]


def test_page_observability_add_app_metrics(ray_session):
    ray = ray_session
    name = f"{ray.__name__}.util.metrics"

    @ray.remote(num_cpus=0)
    class Measured:
        def __init__(self, label):
            metrics = importlib.import_module(name)
            keys = ("label",)
            self.calls = metrics.Counter("page_calls", description="Calls.", tag_keys=keys)
            self.size = metrics.Gauge("page_size", description="Size now.", tag_keys=keys)
            self.time = metrics.Histogram("page_time", description="Time in ms.", boundaries=[0.1, 1], tag_keys=keys)
            for each in (self.calls, self.size, self.time):
                each.set_default_tags({"label": label})

        def call(self, size):
            self.calls.inc()
            self.calls.inc(2, tags={"label": "other"})
            self.size.set(size)
            self.time.observe(0.5)
            return [each.info["name"] for each in (self.calls, self.size, self.time)]

    assert ray.get(Measured.remote("page").call.remote(3)) == ["page_calls", "page_size", "page_time"]


LOGGING = """
import logging
import ENGINE as ray

config = ray.LoggingConfig(encoding="JSON", log_level="INFO", additional_log_standard_attrs=["name"])
ray.init(num_cpus=1, logging_level=logging.ERROR, include_dashboard=False, log_to_driver=True, logging_config=config)

@ray.remote(num_cpus=0)
class Speaker:
    def __repr__(self):
        return "Speaker(1)"

    def say(self):
        print("from the actor")

ray.get(Speaker.remote().say.remote())
logging.getLogger().info("from the driver", extra={"user": "someone"})
ray.shutdown()
"""


@pytest.mark.processes("what workers print comes with their names")
def test_page_observability_configure_logging(run_program):
    done = run_program(LOGGING)
    (record,) = [json.loads(line) for line in (done.stdout + done.stderr).splitlines() if "from the driver" in line]
    assert (record["levelname"], record["name"], record["user"]) == ("INFO", "root", "someone")
    assert {"asctime", "filename", "lineno", "job_id", "worker_id", "node_id"} <= set(record)
    assert any(line.endswith("from the actor") for line in done.stdout.splitlines())
    assert logging.getLevelName("INFO") == logging.INFO


def test_page_observability_tqdm(ray_session):
    ray = ray_session
    name = f"{ray.__name__}.experimental.tqdm_ray"

    @ray.remote(num_cpus=0)
    def work(count):
        tqdm = importlib.import_module(name).tqdm
        done = list(tqdm(range(count), desc="loop"))
        bar = tqdm(total=2, desc="steps")
        bar.update(2)
        bar.close()
        return done

    assert ray.get([work.remote(2), work.remote(3)]) == [[0, 1], [0, 1, 2]]


def test_page_observability_optimize_performance(ray_session, tmp_path):
    ray = ray_session

    @ray.remote(num_cpus=0)
    def work():
        return 1

    assert ray.get(work.remote()) == 1
    assert ray.timeline(filename=str(tmp_path / "timeline.json")) is None
    assert isinstance(json.loads((tmp_path / "timeline.json").read_text()), list)


@pytest.mark.only("mray")
def test_page_observability_cli_sdk(ray_session, echo):
    """Not on Ray here: there it needs the dashboard, which takes half a minute to start."""
    ray, state = ray_session, module(ray_session, "util.state")
    actor = echo.options(name="listed").remote()
    ref, kept = actor.echo.remote(1), ray.put(b"x" * 200_000)
    ray.get(ref)
    (record,) = state.list_actors(filters=[("name", "=", "listed"), ("state", "!=", "DEAD")], detail=True, limit=10)
    assert record.class_name == "echo.<locals>.Echo"
    assert state.get_actor(id=record.actor_id).pid == record.pid
    tasks = state.list_tasks(filters=[("actor_id", "=", record.actor_id)])
    assert tasks
    assert state.get_task(id=tasks[0].task_id) is not None
    (node,) = state.list_nodes()
    assert state.get_node(id=node.node_id).node_id == node.node_id
    assert kept.hex() in {each.object_id for each in state.list_objects()}
    assert {each.pid for each in state.list_workers()} >= {record.pid}
    assert state.list_jobs()
    assert state.list_placement_groups(filters=[("name", "=", "no such group")]) == []
    assert state.summarize_actors()["cluster"]["summary"][record.class_name]["state_counts"]["ALIVE"] >= 1
    assert state.summarize_tasks()["cluster"]["total_actor_tasks"] >= 1
    assert state.summarize_objects()["cluster"]["total_objects"] >= 1
