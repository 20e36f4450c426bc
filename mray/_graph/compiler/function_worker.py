"""Workers for the plain functions of a graph: actors without a state, leased as long as the graph lives.

In the process that compiles. Functions that follow each other share a worker, see `mray._graph.compiler.validate`.
"""

from __future__ import annotations

from typing import Any

from mray._api.actor import ActorClass
from mray._api.decorator import make_remote

#: The options of a task that apply to the worker as a whole.
_OPTIONS = ("num_cpus", "num_gpus", "memory", "resources", "accelerator_type", "runtime_env", "scheduling_strategy")


class GraphFunctions:
    """Runs functions of a compiled graph."""


def lease_worker(options: dict[str, Any]) -> Any:
    """The handle of a new worker, which ends with its last handle. Holds a CPU only if the function asks for some by name."""
    given = {name: options[name] for name in _OPTIONS if options.get(name) is not None}
    actor_class = make_remote(GraphFunctions, {"num_cpus": 0, **given})
    assert isinstance(actor_class, ActorClass)
    return actor_class.remote()
