"""The pictures of a compiled graph, as its methods. In the process that compiled it.

What draws is imported when something is drawn: 25 ms that a graph which nobody looks at does without.
"""

from __future__ import annotations

import logging
import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from mray._common.settings import CGRAPH_VISUALIZE_SCHEDULE
from mray._graph.plan import Channel, Plan

logger = logging.getLogger(__name__)

#: Where the schedule goes, unless told otherwise: Ray's name.
SCHEDULE = "compiled_graph_schedule"


class Depicted(ABC):
    """What has a plan, and the names of its actors' classes by the actors' ids."""

    _plan: Plan
    _names: Mapping[str, str]

    @abstractmethod
    def statistics(self) -> Mapping[str, Any]:
        """What was measured, as `mray._graph.picture.measures` reads it."""

    def visualize(
        self,
        filename: str = "compiled_graph",
        format: str = "png",
        view: bool = False,
        channel_details: bool = False,
        statistics: bool = False,
    ) -> str:
        """Draw the graph into ``filename.<format>``, beside its DOT text in `filename`, and return the DOT text.

        ``"svg"``, ``"html"``, ``"mermaid"`` (``.mmd``), ``"dot"`` and ``"ascii"`` need nothing; ``"png"``, ``"pdf"`` and others need the
        program ``dot``. ``"ascii"`` writes no file and returns its own text, ``"html"`` and ``"mermaid"`` write one file, and ``"mermaid"``
        returns its text. `view` opens the picture, or prints the characters. `channel_details` tells on each edge all about what carries
        it; `statistics` what was measured, in boxes and beside edges, and marks the bottleneck. Raises ImportError when ``dot`` is not
        installed, ValueError for a format that nobody knows, OSError for a file that cannot be written.
        """
        from mray._graph.render import visualize  # noqa: PLC0415  (see above)

        return visualize(self._plan, self._names, filename, format, view, channel_details, self.statistics() if statistics else None)

    def visualize_schedule(
        self, filename: str = SCHEDULE, format: str = "png", view: bool = False, executions: int = 1, statistics: bool = False
    ) -> str:
        """Draw what each actor does in so many executions, over time, into ``filename.<format>``; everything else as in `visualize`.

        With `statistics` the lengths of calls are those that were measured; without, only the order means something. Raises ValueError
        for less than one execution.
        """
        from mray._graph.render import visualize_schedule  # noqa: PLC0415  (see above)

        measured = self.statistics() if statistics else None
        return visualize_schedule(self._plan, self._names, filename, format, view, executions, measured)

    def get_channel_details(self, channel: Channel | None, downstream_actor_id: str) -> str:
        """What carries the values of a channel of the plan to an actor, by its id in hexadecimal; ``""`` is the driver."""
        from mray._graph.render import channel_details  # noqa: PLC0415  (see above)

        return channel_details(self._plan, channel, downstream_actor_id)

    def _repr_svg_(self) -> str:
        from mray._graph.render import plan_svg  # noqa: PLC0415  (see above)

        return plan_svg(self._plan, self._names)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"image/svg+xml": self._repr_svg_(), "text/plain": str(self)}


def draw_schedule_if_asked(plan: Plan, names: Mapping[str, str]) -> None:
    """Write the schedule into the current directory where ``RAY_CGRAPH_VISUALIZE_SCHEDULE`` says so; as SVG if nobody makes PNG.

    A picture that cannot be written is a warning, and no reason not to run.
    """
    if not CGRAPH_VISUALIZE_SCHEDULE.get():
        return
    from mray._graph.render import visualize_schedule  # noqa: PLC0415  (see above)

    picture_format = "png" if shutil.which("dot") else "svg"
    try:
        visualize_schedule(plan, names, SCHEDULE, picture_format)
    except (OSError, RuntimeError) as error:
        logger.warning("The schedule of compiled graph %s is not drawn: %s", plan.graph_id, error)
    else:
        logger.info("The schedule of compiled graph %s is in %s.%s.", plan.graph_id, SCHEDULE, picture_format)
