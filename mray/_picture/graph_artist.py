"""The functions of `mray._picture` for graphs and schedules: the `PlanArtist` of `mray._graph.depicted`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from mray._api.dag_outline import Outlined
from mray._inside.plans import call_numbers
from mray._inside.plans import plan as plans
from mray._picture.dag_figure import dag_figure
from mray._picture.files import draw, graph_svg
from mray._picture.picture_measures import measures_of
from mray._picture.plan_figure import plan_figure
from mray._picture.schedule_trace import schedule_trace
from mray._picture.svg import MOST_NAMED, svg

__all__ = ["dag_svg", "plain_svg", "plan_svg", "visualize", "visualize_dag", "visualize_schedule"]


def visualize(
    plan: plans.Plan,
    names: Mapping[str, str],
    filename: str = "compiled_graph",
    picture_format: str = "png",
    view: bool = False,
    with_channels: bool = False,
    statistics: Mapping[str, Any] | None = None,
) -> str:
    """Implement `CompiledGraph.visualize`. `names`: the class of each actor, by the actor's id; `statistics`: the measures."""
    if picture_format == "ascii" and with_channels:
        raise ValueError("Parameters 'channel_details' are not compatible with 'ascii' format.")
    measures = measures_of(statistics or {}, call_numbers(plan.graph))
    figure = plan_figure(plan, names, with_channels=with_channels, measures=measures)
    return draw(figure, filename, picture_format, view)


def visualize_dag(root: Outlined, filename: str = "dag", picture_format: str = "png", view: bool = False) -> str:
    return draw(dag_figure(root), filename, picture_format, view)


def visualize_schedule(
    plan: plans.Plan, names: Mapping[str, str], filename: str, executions: int = 1, statistics: Mapping[str, Any] | None = None
) -> str:
    measures = measures_of(statistics or {}, call_numbers(plan.graph))
    path = Path(f"{filename}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    schedule_trace(plan, names, executions, measures).save(path)
    return str(path)


def plan_svg(plan: plans.Plan, names: Mapping[str, str]) -> str:
    return graph_svg(plan_figure(plan, names))


def plain_svg(plan: plans.Plan, names: Mapping[str, str]) -> str:
    """A compiled graph as SVG, without ``dot``; if its edges are few enough to be labelled, with an empty line for their counts."""
    figure = plan_figure(plan, names)
    room = (" " * 28,) if len(figure.edges) <= MOST_NAMED else ()
    return svg(
        replace(figure, edges=tuple(replace(edge, label=(*edge.label, *room)) if edge.channel >= 0 else edge for edge in figure.edges))
    )


def dag_svg(root: Outlined) -> str:
    return graph_svg(dag_figure(root))
