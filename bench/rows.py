"""The table of what is compared: one row per promise about speed, memory or idleness.

`compare.py` reads it to know what to run and what is required, `measure.py` to know what it may be asked for.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One thing that is measured on several engines.

    A measurement is a list of samples in `unit`; lower is always better. `required` and `aim` are ratios of the peer's
    median to ours. Where `limit` is set, our own median must not exceed it, whatever the peers do.
    """

    key: str
    title: str
    required: float | None
    aim: float | None
    engines: tuple[str, ...] = ("mray", "ray")
    unit: str = "s"
    #: Show operations per second beside the time.
    rate: bool = False
    limit: float | None = None
    #: Least share of a plain memcpy's speed.
    of_memcpy: float | None = None


POOLS = ("pool", "executor")

ROWS: tuple[Row, ...] = (
    Row("graph_echo", "compiled graph, one actor, echo of a str", 10, 12),
    Row("graph_parked", "compiled graph, echo of a str, no process spins", None, None, engines=("mray",)),
    Row("graph_semaphores", "the same, woken by POSIX semaphores", None, None, engines=("mray",)),
    Row("graph_asyncio", "compiled graph, echo awaited in asyncio", 5, 8),
    Row("graph_attributes8", "compiled graph, 8 input attributes", 8, 12),
    Row("graph_chain4", "compiled graph, chain of 4 actors", 4, 5),
    Row("graph_elsewhere", "compiled graph, executed by another process", None, None, engines=("mray",)),
    Row("graph_fan4", "compiled graph, fan-out to 4 actors", 4, 6),
    Row("graph_scatter4", "compiled graph, scatter to 4 and gather", 5, 6),
    Row("graph_pipeline8", "compiled graph, two actors, 8 in flight", 5, 10, rate=True),
    Row("graph_echo_1m", "compiled graph, echo of a 1 MiB array", 2, 4),
    Row("graph_echo_16m", "compiled graph, echo of a 16 MiB array", 1.3, 3),
    Row("graph_tensor_4k", "compiled graph, echo of a 4 KiB tensor", 8, None),
    Row("graph_tensor_1m", "compiled graph, echo of a 1 MiB tensor", 3, None),
    Row("graph_tensor_16m", "compiled graph, echo of a 16 MiB tensor", 1.3, None),
    Row("graph_compile20", "compile + teardown, 20 DAG nodes, 4 actors", 10, 20),
    Row("allreduce2_1m", "allreduce of 1 MiB in a graph, 2 actors", 1, 2, engines=("mray", "gloo")),
    Row("allreduce4_1m", "allreduce of 1 MiB in a graph, 4 actors", 1, 2, engines=("mray", "gloo")),
    Row("actor_call", "actor call, round trip", 12, 25),
    Row("actor_call_beside", "actor call while two others compute", 5, None),
    Row("task_call", "task, round trip", 15, 30, engines=("mray", "ray", *POOLS)),
    Row("actor_flight", "actor calls in flight, one actor", 10, 20, rate=True),
    Row("submission", "actor call, submitting it alone", 10, None, engines=("mray", "ray", "pickle")),
    Row("task_flight", "tasks in flight", 10, 20, engines=("mray", "ray", *POOLS), rate=True),
    Row("stream_small", "generator method, items of an int", 10, 20, rate=True),
    Row("stream_task", "generator task, items of an int", 10, 20, rate=True),
    Row("stream_asyncio", "generator method, async for, int", 10, 20, rate=True),
    Row("stream_coroutine", "async generator method, items of an int", 10, 20, rate=True),
    Row("stream_threads", "two generators of a threaded actor", 10, 20, rate=True),
    Row("stream_arrays", "generator method, items of 1 MiB arrays", 2, 4, rate=True),
    Row("stream_in_turn", "generator method, back-pressure of one item", 10, 20),
    Row("wait_1k", "wait for one of 1,000 refs", 10, 20),
    Row("wait_1k_all", "wait for all of 1,000 refs", 10, 20),
    Row("actor_pool_map", "ActorPool.map, an item of 10,000", 10, 15, rate=True),
    Row("queue_put_get", "Queue, put and get", 5, 10),
    Row("pool_map", "Pool.map of 10,000 small items", 1, None, engines=("mray", "pool", "ray")),
    Row("pool_map_single", "Pool.map, chunks of one item", None, 1, engines=("mray", "pool", "ray"), rate=True),
    Row("pool_apply", "Pool.apply, round trip", 1, None, engines=("mray", "pool", "ray")),
    Row("pool_arrays_in", "Pool.map, 16 arrays of 4 MiB to their sums", 2, 5, engines=("mray", "pool", "ray")),
    Row("pool_arrays_both", "Pool.map, 16 arrays of 4 MiB there and back", 2, 5, engines=("mray", "pool", "ray")),
    Row("executor_call", "Executor.submit, round trip", 1, 2, engines=("mray", "executor")),
    Row("executor_map", "Executor.map, an item", 1, 2, engines=("mray", "executor"), rate=True),
    Row("joblib_calls", "joblib, 2,000 short calls", 0.9, 1, engines=("mray", "loky")),
    Row("joblib_arrays", "joblib, 64 calls with an 8 MiB array", 1, None, engines=("mray", "loky")),
    Row("joblib_grid", "scikit-learn, GridSearchCV", 1, None, engines=("mray", "loky")),
    Row("async_call", "call of an async method, round trip", 5, 12),
    Row("async_flight", "calls of an async method, 1,000 in flight", 10, 20, rate=True),
    Row("async_between", "calls of async methods, 2 callers, 2 actors", 10, 20, rate=True),
    Row("threaded_call", "call of a threaded actor, round trip", 5, 12),
    Row("threaded_flight", "calls of a threaded actor, 1,000 in flight", 5, 10, rate=True),
    Row("await_call", "ref awaited in the driver, round trip", 5, 10),
    Row("await_10000", "10,000 refs awaited together in the driver", 10, 20, rate=True),
    Row("put_small", "put of a small value", 30, 60),
    Row("get_small", "get of a small value", 2, 5),
    Row("get_1m", "get of 1 MiB, first look", 2, 10),
    Row("get_1m_again", "get of 1 MiB, second look", 2, 10),
    Row("put_64m", "put of 64 MiB, warm", 1, None, engines=("mray", "ray", "memcpy"), of_memcpy=0.8),
    Row("put_256m", "put of 256 MiB, warm", 1, None, engines=("mray", "ray", "memcpy"), of_memcpy=0.8),
    Row("zero_copy_put_get_1m", "put and get, 1 MiB made in shared memory", 2, None),
    Row("zero_copy_put_get_64m", "put and get, 64 MiB made in shared memory", 20, None),
    Row("zero_copy_echo_16m", "graph, echo of 16 MiB made in shared memory", 8, 50),
    Row("zero_copy_batches", "generator, batches of 12 MiB made there", 1.5, None, rate=True),
    Row("argument_16m", "argument of 16 MiB to an actor", 2, 15),
    Row("buffers_8m", "put and get, 8 MiB of buffers out of band", 1.5, None),
    Row("table_32m", "put and get, Arrow table of 32 MiB", 1, None),
    Row("frame_32m", "put and get, pandas frame of 32 MiB", 1, None),
    Row("polars_32m", "put and get, polars frame of 32 MiB", 1, None),
    Row("spill_results", "20 results of 100 MB, room for one", 1.5, None),
    Row("spill_items", "20 items of 100 MB, room for one", 1.5, None),
    Row("spill_put", "put and read back 3 times the store's limit", 1, 2),
    Row("spill_tasks", "3 times the store's limit made by tasks, read back", 1.5, 3),
    Row("actors_20", "20 actors from nothing to first reply", 20, 50),
    Row("made_100", "100 actors, from nothing to first reply, an actor", 10, None),
    Row("made_1000", "1,000 actors, from nothing to first reply, an actor", None, None, engines=("mray",)),
    Row("killed_100", "100 actors killed and told dead, an actor", 2, None),
    Row("killed_1000", "1,000 actors killed and told dead, an actor", None, None, engines=("mray",)),
    Row("memory_100", "memory of one of 100 actors, PSS", 4, None, unit="MB"),
    Row("memory_1000", "memory of one of 1,000 actors, PSS", None, None, engines=("mray",), unit="MB"),
    Row("call_among_100", "calls of 100 actors in turn, round trip", 5, None),
    Row("call_among_1000", "calls of 1,000 actors in turn, round trip", None, None, engines=("mray",)),
    Row("same_among_100", "calls of one actor, 100 connections open", 10, None),
    Row("same_among_1000", "calls of one actor, 1,000 connections open", None, None, engines=("mray",)),
    Row("queued_10k", "10,000 tasks queued, a task", 10, None, rate=True),
    Row("queued_100k", "100,000 tasks queued, a task", 10, None, rate=True),
    Row("graph_10", "compiled graph, fan-out to 10 actors", 4, None),
    Row("graph_100", "compiled graph, fan-out to 100 actors", 2, None),
    Row("init_cycle", "init + first task + shutdown", 25, 50, engines=("mray", "ray", *POOLS)),
    Row("idle_actor_pss", "memory of an idle actor, PSS", 4, 8, unit="MB"),
    Row("idle_session_cpu", "CPU of an idle session", None, None, unit="% of a core", limit=1.0),
    Row("idle_graph_cpu", "CPU of an idle compiled graph", None, None, unit="% of a core", limit=1.0),
)

BY_KEY = {row.key: row for row in ROWS}
