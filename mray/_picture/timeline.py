"""A picture of a trace, with matplotlib: a row for each track, a colour for each function, arrows from writers to readers.

Waiting and the moving of values, which are no function's own, have the colours of their kinds. A call that is not over is hatched and
ends at the right.

For ``mray timeline --png``, to look at a trace without a browser. Of long traces only a window is readable.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from mray._picture.figure import owner_colors
from mray._trace.chrome import Message, Recording, messages, spans_by_track
from mray._trace.span import (
    ARGUMENTS,
    CALL,
    COMPUTE,
    DESERIALIZE,
    DEVICE,
    EXECUTE,
    GET,
    READ_WAIT,
    RECEIVE,
    REPLY,
    RUNNING,
    SERIALIZE,
    SUBMIT,
    TRANSFER,
    WRITE_WAIT,
    Span,
)

#: Colours that people who see red and green as one can tell apart, too (after Okabe and Ito).
COLOURS = {
    COMPUTE: "#009E73",
    EXECUTE: "#009E73",
    DEVICE: "#F0E442",
    READ_WAIT: "#D9D9D9",
    WRITE_WAIT: "#E69F9F",
    GET: "#D9D9D9",
    DESERIALIZE: "#56B4E9",
    ARGUMENTS: "#56B4E9",
    RECEIVE: "#0072B2",
    SERIALIZE: "#E69F00",
    REPLY: "#E69F00",
    TRANSFER: "#D55E00",
    SUBMIT: "#CC79A7",
    CALL: "#BFD9CF",
}
_NAMES = {
    COMPUTE: "compute",
    DEVICE: "on a device",
    READ_WAIT: "wait to read",
    WRITE_WAIT: "wait to write",
    DESERIALIZE: "deserialize",
    RECEIVE: "receive",
    SERIALIZE: "serialize",
    TRANSFER: "transfer",
    SUBMIT: "submit",
    CALL: "call",
}
#: Kinds whose slices need no name: their colour or the name of the slice around them is enough.
_UNNAMED = frozenset({READ_WAIT, WRITE_WAIT, EXECUTE, ARGUMENTS, REPLY})
#: Arrows above so many hide what is below them.
MOST_ARROWS = 400
#: A slice narrower than this share of the picture has no room for its name.
_LEAST_NAMED = 0.04


#: Functions that have a colour of their own: those that took longest.
MOST_COLOURED = 10
#: Of all other functions.
OTHERS = "#B8B8B8"
#: Kinds of slices that are a function of the user.
_OF_FUNCTIONS = frozenset({CALL, COMPUTE})


def function_of(span: Span) -> str:
    """The function that a slice is, whether or not it is over."""
    return span.name.removesuffix(RUNNING)


def function_colours(spans: Iterable[Span]) -> dict[str, str]:
    """A colour for each function, the longest first; `OTHERS` for those beyond the colours that can be told apart."""
    times: dict[str, int] = {}
    for span in spans:
        if span.kind in _OF_FUNCTIONS:
            times[function_of(span)] = times.get(function_of(span), 0) + span.end - span.begin
    longest = sorted(times, key=lambda name: (-times[name], name))
    own = owner_colors(min(len(longest), MOST_COLOURED))
    return {name: own[place] if place < len(own) else OTHERS for place, name in enumerate(longest)}


#: Behind a name: hatches would run through it.
_PAPER: dict[str, Any] = {"facecolor": "white", "alpha": 0.6, "linewidth": 0, "pad": 1.0}


def draw(recordings: Sequence[Recording], path: str | os.PathLike[str], *, begin: float = 0.0, seconds: float | None = None) -> int:
    """Draw the spans of a window: `seconds` of it from `begin` seconds after the first span on; returns the number of drawn slices.

    The format follows from the suffix of `path`. ImportError when matplotlib is missing, ValueError when the window has no spans.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
        from matplotlib.figure import Figure  # noqa: PLC0415
        from matplotlib.patches import Patch  # noqa: PLC0415
    except ImportError as error:
        raise ImportError("A picture of a timeline needs matplotlib: pip install matplotlib.") from error
    tracks = spans_by_track(recordings)
    if not tracks:
        raise ValueError("there are no spans to draw")
    origin = min(span.begin for spans in tracks.values() for span in spans) + round(begin * 1e9)
    last = max(span.end for spans in tracks.values() for span in spans) if seconds is None else origin + round(seconds * 1e9)
    shown = {key: [span for span in spans if span.end > origin and span.begin < last] for key, spans in tracks.items()}
    shown = {key: spans for key, spans in shown.items() if spans}
    if not shown:
        raise ValueError("nothing happened in this window")
    scale, unit = (1e3, "µs") if last - origin < 5e6 else (1e6, "ms") if last - origin < 5e9 else (1e9, "s")
    width = (last - origin) / scale

    names = {each.pid: each.name for each in recordings}
    # The rows of a process are drawn together.
    shown = {key: spans for pid in names for key, spans in shown.items() if key[0] == pid}
    figure = Figure(figsize=(16, 2.0 + 0.55 * len(shown)), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    axes: Any = figure.subplots()
    rows = {key: row for row, key in enumerate(shown)}
    kinds: set[str] = set()
    functions = function_colours(span for spans in shown.values() for span in spans)
    count, running = 0, False
    for key, spans in shown.items():
        open_until: list[int] = []
        for span in spans:
            while open_until and open_until[-1] <= span.begin:
                open_until.pop()
            depth = len(open_until)
            open_until.append(span.end)
            left = max(span.begin - origin, 0) / scale
            right = min((span.end - origin) / scale, width)
            height = 0.8 * 0.7**depth
            is_function, is_running = span.kind in _OF_FUNCTIONS, span.name.endswith(RUNNING)
            colour = functions[function_of(span)] if is_function else COLOURS.get(span.kind, "#999999")
            axes.broken_barh(
                [(left, right - left)],
                (rows[key] - height / 2, height),
                facecolors=colour,
                edgecolor="#B22222" if span.failed else "#555555" if is_running else "white",
                linewidth=1.2 if span.failed else 0.3,
                hatch="///" if is_running else None,
            )
            running = running or is_running
            if not is_function:
                kinds.add(span.kind)
            count += 1
            if right - left > _LEAST_NAMED * width and span.kind not in _UNNAMED:
                text = _fitted(span, (right - left) / width)
                axes.text((left + right) / 2, rows[key], text, ha="center", va="center", fontsize=7, clip_on=True, bbox=_PAPER)
    for message in _arrows(recordings, origin, last):
        (pid, write), (reader, read) = message.write, message.read
        arrow: Any = {"arrowstyle": "-|>", "color": "#444444", "linewidth": 0.6, "alpha": 0.7, "shrinkA": 0, "shrinkB": 0}
        left, came = (message.left - origin) / scale, (max(read.begin, message.left) - origin) / scale
        axes.annotate("", xy=(came, rows[reader, read.track]), xytext=(left, rows[pid, write.track]), arrowprops=arrow)
    axes.set_xlim(0, width)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_yticks(list(rows.values()), [f"{_cut(names[pid], 30)} pid {pid}\n{track}" for pid, track in rows], fontsize=8)
    axes.set_xlabel(unit)
    axes.grid(axis="x", linewidth=0.3)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    handles = [Patch(label=text, **looks) for text, looks in legend(functions, kinds, running)]
    longest = max((len(str(each.get_label())) for each in handles), default=1)
    columns = max(1, min(len(handles), 150 // (longest + 6)))
    axes.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=columns, fontsize=8, frameon=False)
    figure.savefig(path)
    return count


def legend(functions: Mapping[str, str], kinds: Set[str], running: bool) -> list[tuple[str, dict[str, Any]]]:
    """The texts of the legend, and the looks of what they mean."""
    rows: list[tuple[str, dict[str, Any]]] = [
        (_cut(name, 60), {"facecolor": colour}) for name, colour in functions.items() if colour != OTHERS
    ]
    if len(rows) < len(functions):
        rows.append((f"{len(functions) - len(rows)} other functions", {"facecolor": OTHERS}))
    rows += [(_NAMES[kind], {"facecolor": COLOURS[kind]}) for kind in _NAMES if kind in kinds]
    if running:
        rows.append((RUNNING.strip(" ()"), {"facecolor": "white", "edgecolor": "#555555", "hatch": "///"}))
    return rows


def _fitted(span: Span, share: float) -> str:
    return _cut(span.name.removeprefix("the edge "), max(int(share * 220), 3))


def _cut(name: str, room: int) -> str:
    return name if len(name) <= room else name[: room - 1] + "…"


def _arrows(recordings: Sequence[Recording], begin: int, end: int) -> list[Message]:
    """The messages that left and arrived in the window; none at all when there are too many."""
    found = [each for each in messages(recordings) if begin <= each.left and each.read[1].begin <= end]
    return found if len(found) <= MOST_ARROWS else []
