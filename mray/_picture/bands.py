"""The time of a `Chart` in bands, one below the other, where it is too long for a page. Pure.

Every bar lies in the band in which it begins. An arrow from one band to another leaves at the right edge and comes in at the left one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mray._graph.plan import INPUT
from mray._picture.timing import Chart


@dataclass(frozen=True)
class Edge:
    """The places on one row where arrows leave its band, or come into it."""

    row: int
    #: The places of these arrows among the chart's.
    arrows: tuple[int, ...]
    #: The values that they carry, and the bands that they go to or come from.
    text: str


@dataclass(frozen=True)
class Banded:
    """A chart whose lanes are the rows of all bands. Bars begin at the distance from the begin of their band."""

    chart: Chart
    #: For each row the lane that it shows, and its band.
    lanes: tuple[int, ...]
    bands: tuple[int, ...]
    leaving: tuple[Edge, ...] = ()
    arriving: tuple[Edge, ...] = ()

    @property
    def has_several(self) -> bool:
        return self.bands[-1:] > (0,)

    @property
    def crossing(self) -> set[int]:
        """The arrows from one band to another, by their places."""
        return {arrow for edge in self.leaving for arrow in edge.arrows}


def banded(chart: Chart, most: float) -> Banded:
    """The chart in bands of so much time at most. Lanes on which nothing begins during a band are no rows of it."""
    starts = _starts(chart, most)
    if len(starts) < 2:
        return Banded(chart, tuple(range(len(chart.lanes))), (0,) * len(chart.lanes))
    band_of = [sum(start <= bar.begin for start in starts[1:]) for bar in chart.bars]
    used = {(band, bar.lane) for band, bar in zip(band_of, chart.bars, strict=True)}
    used |= {(0, lane) for lane in range(len(chart.lanes)) if all(bar.lane != lane for bar in chart.bars)}
    rows = {key: row for row, key in enumerate(sorted(used))}
    bars = tuple(
        bar._replace(lane=rows[band, bar.lane], begin=bar.begin - starts[band], end=bar.end - starts[band])
        for band, bar in zip(band_of, chart.bars, strict=True)
    )
    made = replace(chart, lanes=tuple(chart.lanes[lane] for _band, lane in rows), bars=bars)
    crossing = [n for n, arrow in enumerate(chart.arrows) if band_of[arrow.source] != band_of[arrow.target]]
    leaving: dict[int, list[int]] = {}
    arriving: dict[int, list[int]] = {}
    for number in crossing:
        leaving.setdefault(bars[chart.arrows[number].source].lane, []).append(number)
        arriving.setdefault(bars[chart.arrows[number].target].lane, []).append(number)

    def edge(row: int, numbers: list[int], word: str) -> Edge:
        ends = [chart.arrows[each].target if word == "to" else chart.arrows[each].source for each in numbers]
        values = list(dict.fromkeys(value_of(chart, each) for each in numbers))
        others = sorted({band_of[each] + 1 for each in ends})
        which = f"row {others[0]}" if len(others) == 1 else f"rows {others[0]}-{others[-1]}"
        return Edge(row, tuple(numbers), f"{' '.join(values) if len(values) < 3 else f'{len(values)} values'} {word} {which}")

    return Banded(
        made,
        tuple(lane for _band, lane in rows),
        tuple(band for band, _lane in rows),
        tuple(edge(row, numbers, "to") for row, numbers in sorted(leaving.items())),
        tuple(edge(row, numbers, "from") for row, numbers in sorted(arriving.items())),
    )


def value_of(chart: Chart, arrow: int) -> str:
    """The short name of the value that an arrow carries."""
    step = chart.bars[chart.arrows[arrow].source].step
    return "input" if step == INPUT.step else f"[{chart.numbers[step]}]"


def _starts(chart: Chart, most: float) -> list[float]:
    """The times at which bands begin: where the fewest bars are cut off, as far right as there is room."""
    bars = sorted(chart.bars, key=lambda bar: bar.begin)
    starts = [0.0]
    while True:
        begin, reach = starts[-1], starts[-1]
        possible: list[tuple[float, float]] = []
        for bar in bars:
            if bar.begin < begin:
                continue
            if bar.begin > begin and (not possible or possible[-1][0] < bar.begin):
                possible.append((bar.begin, reach))
            reach = max(reach, bar.end)
            if reach - begin > most * 1.0001 and possible:
                break
        else:
            return starts
        last = possible[-1][0]
        late = [(max(reached - time, 0.0), -time) for time, reached in possible if time - begin > (last - begin) * 0.7]
        starts.append(-min(late)[1])
