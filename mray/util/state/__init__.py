"""The state of a session: actors, tasks, objects, workers, the node, compiled graphs and their channels. Ray's `ray.util.state`.

::

    list_actors(filters=[("state", "=", "ALIVE")], detail=True)

    api ──View──▶ _gather ──▶ mray._runtime.observe.observer ──▶ node, driver, workers      raw rows, at this moment
     └─ records (common) ──▶ _select (filters) ──▶ what users see

Built on looking, not on recording: no process notes down what it does, so the engine is as fast with this as without, and what is over is
soon forgotten. Rejected: a collector of events, as Ray has, which would cost each call more than the call.
"""

from __future__ import annotations

from mray.util.state.api import (
    StateApiClient,
    get_actor,
    get_graph,
    get_job,
    get_log,
    get_node,
    get_objects,
    get_placement_group,
    get_task,
    get_worker,
    list_actors,
    list_channels,
    list_graphs,
    list_jobs,
    list_logs,
    list_nodes,
    list_objects,
    list_placement_groups,
    list_tasks,
    list_workers,
    summarize_actors,
    summarize_objects,
    summarize_tasks,
)

__all__ = [
    "StateApiClient",
    "get_actor",
    "get_graph",
    "get_job",
    "get_log",
    "get_node",
    "get_objects",
    "get_placement_group",
    "get_task",
    "get_worker",
    "list_actors",
    "list_channels",
    "list_graphs",
    "list_jobs",
    "list_logs",
    "list_nodes",
    "list_objects",
    "list_placement_groups",
    "list_tasks",
    "list_workers",
    "summarize_actors",
    "summarize_objects",
    "summarize_tasks",
]
