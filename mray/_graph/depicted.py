"""The pictures of a compiled graph, as its methods.

`mray._picture` is imported at the first picture.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Protocol, cast

from mray._api.artist import Artist, artist
from mray._common.settings import CGRAPH_VISUALIZE_SCHEDULE
from mray._graph.drawing import channel_details
from mray._graph.participants import Participants
from mray._graph.plan import Plan, Route

logger = logging.getLogger(__name__)

SCHEDULE = "compiled_graph_schedule"


class PlanArtist(Artist, Protocol):
    """Draws compiled graphs. `names`: actor id -> class."""

    def visualize(
        self,
        plan: Plan,
        names: Mapping[str, str],
        filename: str,
        picture_format: str,
        view: bool,
        with_channels: bool,
        statistics: Mapping[str, Any] | None,
    ) -> str:
        """See `Depicted.visualize`."""

    def visualize_schedule(
        self, plan: Plan, names: Mapping[str, str], filename: str, executions: int = 1, statistics: Mapping[str, Any] | None = None
    ) -> str:
        """See `Depicted.visualize_schedule`."""

    def plan_svg(self, plan: Plan, names: Mapping[str, str]) -> str:
        """The picture as SVG."""

    def plain_svg(self, plan: Plan, names: Mapping[str, str]) -> str:
        """Independent of the program ``dot``, with channel numbers at the edges."""


def plan_artist() -> PlanArtist:
    return cast("PlanArtist", artist())


class Depicted(ABC):
    _plan: Plan
    participants: Participants

    @abstractmethod
    def statistics(self) -> Mapping[str, Any]:
        """The measures, as `mray._picture.picture_measures` reads them."""

    def visualize(
        self,
        filename: str = "compiled_graph",
        format: str = "png",
        view: bool = False,
        channel_details: bool = False,
        statistics: bool = False,
    ) -> str:
        """Draw the graph into ``filename.<format>`` and its DOT text into `filename`; return the DOT text.

        ``"mermaid"`` (``.mmd``), ``"dot"`` and ``"ascii"`` need nothing; ``"png"``, ``"pdf"`` and others need the program ``dot``, and
        ``"svg"`` is plainer without it. ``"ascii"`` writes no file and ``"mermaid"`` one, and both return their own text. `view` opens
        the picture, or prints the characters. `channel_details`; `statistics` shows measures in boxes and beside edges, and marks the
        bottleneck. Raises ImportError if ``dot`` is required and not installed, ValueError for an unknown format, OSError if a file
        cannot be written.
        """
        measured = self.statistics() if statistics else None
        return plan_artist().visualize(self._plan, self.participants.classes, filename, format, view, channel_details, measured)

    def visualize_schedule(self, filename: str = SCHEDULE, executions: int = 1, statistics: bool = False) -> str:
        """Write each actor's operations in the given number of executions to ``filename.json``, a trace for https://ui.perfetto.dev, and
        return its path. With `statistics` calls have their measured lengths; without, only the order is meaningful. ValueError for less
        than one execution, OSError if the file cannot be written.
        """
        measured = self.statistics() if statistics else None
        return plan_artist().visualize_schedule(self._plan, self.participants.classes, filename, executions, measured)

    def get_channel_details(self, channel: Route | None, downstream_actor_id: str) -> str:
        """Describe the transport of a channel to an actor, given by its id in hexadecimal; ``""`` is the driver."""
        return channel_details(self._plan, channel, downstream_actor_id)

    def _repr_svg_(self) -> str:
        return plan_artist().plan_svg(self._plan, self.participants.classes)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"image/svg+xml": self._repr_svg_(), "text/plain": str(self)}


def draw_schedule_if_asked(plan: Plan, names: Mapping[str, str]) -> None:
    """Obey ``RAY_CGRAPH_VISUALIZE_SCHEDULE``."""
    if not CGRAPH_VISUALIZE_SCHEDULE.get():
        return
    try:
        path = plan_artist().visualize_schedule(plan, names, SCHEDULE)
    except OSError as error:
        logger.warning("The schedule of compiled graph %s is not written: %s", plan.graph_id, error)
    else:
        logger.info("The schedule of compiled graph %s is in %s: https://ui.perfetto.dev shows it.", plan.graph_id, path)
