"""The arguments of `execute` as one value for the input channel, and the parts of it that steps get."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mray._api.dag_node import DAGInputData
from mray._graph.plan import ATTRIBUTE, DIRECT, MIXED, PART, SIGNAL, Graph


def check_inputs(graph: Graph, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if graph.form == MIXED and len(args) == 1 and not kwargs:
        return
    wanted = graph.positional
    if len(args) != wanted:
        raise ValueError(f"dag.execute() or dag.execute_async() must be called with {wanted} positional args, got {len(args)}")
    for keyword in graph.keywords:
        if keyword not in kwargs:
            raise ValueError(f"dag.execute() or dag.execute_async() must be called with kwarg `{keyword}`")


def packer(graph: Graph) -> Callable[[tuple[Any, ...], dict[str, Any]], Any]:
    """Pack checked arguments."""
    if graph.form == DIRECT:
        return lambda args, kwargs: args[0]
    if graph.form == SIGNAL:
        return lambda args, kwargs: None
    if graph.form == MIXED:
        return lambda args, kwargs: args[0] if len(args) == 1 and not kwargs else DAGInputData(*args, **kwargs)
    return lambda args, kwargs: (args, kwargs)


def picker(key: int | str, by: str) -> Callable[[Any], Any]:
    """Pick by `Argument.key` and `Argument.by`."""
    if by == PART:
        half = 0 if isinstance(key, int) else 1
        return lambda value: value[half][key]
    if by == ATTRIBUTE:
        name = str(key)
        return lambda value: value[name] if isinstance(value, DAGInputData) else getattr(value, name)
    return lambda value: value[key]
