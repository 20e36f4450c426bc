"""A trace as a page: a lane for each track, a colour for each function, arrows from writers to readers. Pure.

A function's colour is chosen by its name, so that it is the same on every page. Waiting and transfers have the colours of their
kinds. A call that is not over has a dashed outline.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set

from mray._inside.spans import RUNNING, Message, Recording, Span, kinds, messages, spans_by_track
from mray._picture.figure import owner_colors
from mray._picture.page import FAILED, RUNS, Slice, page

#: By kind; distinguishable with red-green colour blindness (after Okabe and Ito).
COLOURS = {
    kinds.EXECUTE: "#009E73",
    kinds.DEVICE: "#F0E442",
    kinds.READ_WAIT: "#D9D9D9",
    kinds.WRITE_WAIT: "#E69F9F",
    kinds.GET: "#D9D9D9",
    kinds.DESERIALIZE: "#56B4E9",
    kinds.ARGUMENTS: "#56B4E9",
    kinds.RECEIVE: "#0072B2",
    kinds.SERIALIZE: "#E69F00",
    kinds.REPLY: "#E69F00",
    kinds.TRANSFER: "#D55E00",
    kinds.SUBMIT: "#CC79A7",
}
MOST_ARROWS = 400
#: of a page that a browser loads and moves without delay
MOST_SLICES = 250_000
#: Functions in the legend: those that took longest.
MOST_NAMED = 10
#: Colours of functions; two functions have the same one where their names choose it and no other is free.
_COLOURS = owner_colors(32)
#: Processes that a sentence lists.
_MOST_LISTED = 5
_OF_FUNCTIONS = frozenset({kinds.CALL, kinds.COMPUTE})


def function_of(span: Span) -> str:
    """The function of a slice, whether or not it is over."""
    return span.name.removesuffix(RUNNING)


def function_colours(spans: Iterable[Span], called: Mapping[str, int] | None = None) -> dict[str, str]:
    """A colour for each function, chosen by its name. Of two that choose the same, the one that was called first has it, so that a
    function that is called later changes no other's colour; `called` tells of first calls before the spans.
    """
    begun = dict(called or {})
    for span in spans:
        if span.kind in _OF_FUNCTIONS:
            name = function_of(span)
            begun[name] = min(begun.get(name, span.begin), span.begin)
    chosen: dict[str, str] = {}
    free = set(_COLOURS)
    for name in sorted(begun, key=lambda name: (begun[name], name)):
        place = zlib.crc32(name.encode()) % len(_COLOURS)
        wanted = _COLOURS[place:] + _COLOURS[:place]
        chosen[name] = next((colour for colour in wanted if colour in free), wanted[0])
        free.discard(chosen[name])
    return chosen


def longest_functions(spans: Iterable[Span]) -> list[str]:
    """The functions that took longest, in the sum of their calls, first."""
    times: dict[str, int] = {}
    for span in spans:
        if span.kind in _OF_FUNCTIONS:
            times[function_of(span)] = times.get(function_of(span), 0) + span.end - span.begin
    return sorted(times, key=lambda name: (-times[name], name))


def left_out(lost: Mapping[str, str]) -> list[str]:
    """Sentences about the processes of which a trace has nothing, from its ``info["lost"]``: one for each reason."""
    reasons: defaultdict[str, list[str]] = defaultdict(list)
    for process, reason in lost.items():
        reasons[reason].append(process)
    return [f"Left out ({reason}): {_listed(processes)}." for reason, processes in reasons.items()]


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_LISTED:,} more" if len(names) > _MOST_LISTED else ""
    return f"{', '.join(names[:_MOST_LISTED])}{more}"


def timeline_page(
    recordings: Sequence[Recording],
    *,
    begin: float = 0.0,
    seconds: float | None = None,
    lost: Mapping[str, str] | None = None,
    called: Mapping[str, int] | None = None,
) -> tuple[str, int]:
    """The page of a window, which starts `begin` seconds after the first span and lasts `seconds`; and the number of slices on it.

    ValueError when the window has no spans. Of too many the latest are shown. `lost` is the trace's, which the page names; `called`, too,
    when functions were called first, for their colours.
    """
    tracks = spans_by_track(recordings)
    if not tracks:
        raise ValueError("there are no spans to draw")
    origin = min(span.begin for spans in tracks.values() for span in spans) + round(begin * 1e9)
    last = max(span.end for spans in tracks.values() for span in spans) if seconds is None else origin + round(seconds * 1e9)
    notes = left_out(lost or {})
    inside = [span.begin for spans in tracks.values() for span in spans if span.end > origin and span.begin < last]
    if len(inside) > MOST_SLICES:
        origin = max(origin, sorted(inside)[-MOST_SLICES])
        notes.append(f"The latest {MOST_SLICES:,} of {len(inside):,} slices: the time before them is left out.")
    names = {each.pid: each.name for each in recordings}
    # Groups the lanes of a process.
    shown = {
        key: seen
        for pid in names
        for key, spans in tracks.items()
        if key[0] == pid and (seen := [span for span in spans if span.end > origin and span.begin < last])
    }
    if not shown:
        raise ValueError("nothing happened in this window")
    colours = function_colours((span for spans in tracks.values() for span in spans), called)
    slices: list[Slice] = []
    for lane, spans in enumerate(shown.values()):
        open_until: list[int] = []
        for span in spans:
            while open_until and open_until[-1] <= span.begin:
                open_until.pop()
            colour = colours[function_of(span)] if span.kind in _OF_FUNCTIONS else COLOURS.get(span.kind, "#999999")
            mark = FAILED if span.failed else RUNS if span.name.endswith(RUNNING) else ""
            ends = max(span.begin - origin, 0) / 1e6, (min(span.end, last) - origin) / 1e6
            slices.append(Slice(lane, *ends, span.name, colour, len(open_until), mark))
            open_until.append(span.end)
    lanes = {key: lane for lane, key in enumerate(shown)}
    arrows = [
        (lanes[pid, write.track], (each.left - origin) / 1e6, lanes[reader, read.track], (max(read.begin, each.left) - origin) / 1e6)
        for each in _arrows(recordings, origin, last)
        for (pid, write), (reader, read) in ((each.write, each.read),)
    ]
    kinds = {span.kind for spans in shown.values() for span in spans} - _OF_FUNCTIONS
    functions = longest_functions(span for spans in shown.values() for span in spans)
    rows = legend({name: colours[name] for name in functions}, kinds, any(each.mark == RUNS for each in slices))
    return page("timeline", [(names[pid], f"pid {pid}, {track}") for pid, track in shown], slices, arrows, rows, notes), len(slices)


def legend(functions: Mapping[str, str], kinds: Set[str], running: bool) -> list[tuple[str, str]]:
    rows = list(functions.items())[:MOST_NAMED]
    if len(rows) < len(functions):
        rows.append((f"and {len(functions) - len(rows)} other functions", "none"))
    rows += [(kind, colour) for kind, colour in COLOURS.items() if kind in kinds]
    return [*rows, *([(f"a broken line: {RUNNING.strip(' ()')}", "none")] if running else [])]


def _arrows(recordings: Sequence[Recording], begin: int, end: int) -> list[Message]:
    """The messages that left and arrived in the window; none when there are too many."""
    found = [each for each in messages(recordings) if begin <= each.left and each.read[1].begin <= end]
    return found if len(found) <= MOST_ARROWS else []
