"""The functions of `mray._picture` for graphs and schedules: the `PlanArtist` of `mray._graph.depicted`.

In the process that draws.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from mray._api.dag_outline import Outlined
from mray._graph.plan import READ, Operation, Plan, Source
from mray._graph.structure import call_numbers
from mray._picture.characters import ascii as plan_ascii
from mray._picture.characters import figure_ascii
from mray._picture.chart_forms import chart_ascii, chart_dot, chart_mermaid
from mray._picture.chart_svg import chart_svg
from mray._picture.dag_figure import dag_figure
from mray._picture.dot_form import dot
from mray._picture.figure import Figure
from mray._picture.files import Forms, draw, terminal_width
from mray._picture.measures import measures_of
from mray._picture.mermaid import mermaid
from mray._picture.page import page
from mray._picture.plan_figure import channel_details, plan_figure, short
from mray._picture.svg import svg
from mray._picture.timing import SCHEDULE, Chart, chart

__all__ = [
    "channel_details",
    "dag_svg",
    "operations",
    "plan_svg",
    "visualize",
    "visualize_dag",
    "visualize_schedule",
]


# -------------------------------------------------------------------------------------------- graphs
def visualize(
    plan: Plan,
    names: Mapping[str, str],
    filename: str = "compiled_graph",
    picture_format: str = "png",
    view: bool = False,
    with_channels: bool = False,
    statistics: Mapping[str, Any] | None = None,
) -> str:
    """Implements `CompiledGraph.visualize`. `names`: the class of each actor, by the actor's id; `statistics`: the measures.

    See `mray._picture.files.draw`.
    """
    if picture_format == "ascii" and with_channels:
        raise ValueError("Parameters 'channel_details' are not compatible with 'ascii' format.")
    measures = measures_of(statistics or {}, call_numbers(plan.graph))
    figure = plan_figure(plan, names, with_channels=with_channels, measures=measures)
    schedule = partial(chart, plan, names, 1, measures)
    return draw(_forms(figure, lambda: plan_ascii(plan, terminal_width()), schedule), filename, picture_format, view)


def visualize_dag(root: Outlined, filename: str = "dag", picture_format: str = "png", view: bool = False) -> str:
    """Implements `DAGNode.visualize`. See `mray._picture.files.draw`."""
    figure = dag_figure(root)
    return draw(_forms(figure, lambda: figure_ascii(figure, terminal_width())), filename, picture_format, view)


def plan_svg(plan: Plan, names: Mapping[str, str]) -> str:
    """A compiled graph as SVG."""
    return svg(plan_figure(plan, names))


def dag_svg(root: Outlined) -> str:
    """A graph that is not compiled as SVG."""
    return svg(dag_figure(root))


def _forms(figure: Figure, characters: Callable[[], str], schedule: Callable[[], Chart] | None = None) -> Forms:
    def html() -> str:
        return page(figure.name, [("Graph", svg(figure))] + ([("Schedule", chart_svg(schedule()))] if schedule is not None else []))

    return Forms(partial(dot, figure), {"ascii": characters, "html": html, "mermaid": lambda: mermaid(figure), "svg": lambda: svg(figure)})


# -------------------------------------------------------------------------------------------- schedules
def visualize_schedule(
    plan: Plan,
    names: Mapping[str, str],
    filename: str = SCHEDULE,
    picture_format: str = "png",
    view: bool = False,
    executions: int = 1,
    statistics: Mapping[str, Any] | None = None,
) -> str:
    """Implements `CompiledGraph.visualize_schedule`. See `mray._picture.files.draw`."""
    drawn = chart(plan, names, executions, measures_of(statistics or {}, call_numbers(plan.graph)))
    own: dict[str, Callable[[], str]] = {
        "ascii": lambda: f"{chart_ascii(drawn, terminal_width())}\n\n{operations(plan, names)}",
        "svg": partial(chart_svg, drawn),
        "mermaid": partial(chart_mermaid, drawn),
        "html": lambda: page(SCHEDULE, [("Schedule", chart_svg(drawn))]),
    }
    return draw(Forms(partial(chart_dot, drawn), own), filename, picture_format, view)


def operations(plan: Plan, names: Mapping[str, str]) -> str:
    """The operations of each actor in each execution, in order: one line per operation."""
    lines = []
    numbers = call_numbers(plan.graph)
    for actor, program in plan.schedule.items():
        lines.append(f"{names.get(actor, 'Actor')} {short(actor)}:")
        lines += [f"  {place:>3}  {operation.kind:<7}  {_operation(plan, operation, numbers)}" for place, operation in enumerate(program)]
    return "\n".join(lines)


def _operation(plan: Plan, operation: Operation, numbers: Mapping[int, int]) -> str:
    step = plan.graph.steps[operation.step]
    name = f"[{numbers[step.index]}] {step.method}"
    if operation.channel < 0:
        return name
    channel = next(channel for channel in plan.channels if channel.index == operation.channel)
    value = _value(plan, channel.source, numbers)
    if operation.kind == READ:
        return f"{name}: {value} from {short(channel.writer)}"
    return f"{name}: {value} to {', '.join(short(reader) for reader in channel.readers)}"


def _value(plan: Plan, source: Source, numbers: Mapping[int, int]) -> str:
    if source.step < 0:
        return "the input"
    step = plan.graph.steps[source.step]
    return f"result {source.output} of [{numbers[step.index]}]" if step.num_returns > 1 else f"result of [{numbers[step.index]}]"
