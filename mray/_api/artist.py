"""The contract of the module that draws graphs, loaded for the first picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from mray._common.beside import ARTIST, loaded

if TYPE_CHECKING:
    from mray._api.dag_outline import Outlined


class Artist(Protocol):
    """Draws DAG nodes that a user bound. `mray._graph.depicted.PlanArtist` extends it for compiled graphs."""

    def visualize_dag(self, root: Outlined, filename: str, picture_format: str, view: bool) -> str:
        """Write the picture of everything upstream of `root` into a file; returns its text, as `DAGNode.visualize` says."""

    def dag_svg(self, root: Outlined) -> str:
        """The same picture as SVG."""


def artist() -> Artist:
    """The module that draws, loaded on first use."""
    found: Artist = loaded(ARTIST)
    return found
