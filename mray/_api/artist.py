"""The contract of what draws graphs, and the place where the layer that draws is registered.

In every process. `mray` registers how to load `mray._picture.graph_artist`; nothing is loaded before the first picture is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from mray._api.dag_outline import Outlined


class Artist(Protocol):
    """Draws DAG nodes that a user bound. `mray._graph.depicted.PlanArtist` says what compiled graphs need besides."""

    def visualize_dag(self, root: Outlined, filename: str, picture_format: str, view: bool) -> str:
        """Write the picture of everything upwards from `root` into a file; returns its text, as `DAGNode.visualize` says."""

    def dag_svg(self, root: Outlined) -> str:
        """The same picture as SVG."""


_loads: list[Callable[[], Artist]] = []


def register_artist(load: Callable[[], Artist]) -> None:
    """Say how to load what draws; replaces what was registered before."""
    _loads[:] = [load]


def artist() -> Artist:
    """The module that draws, loaded when it is first asked for."""
    return _loads[0]()
