"""`Figure`: the content of a graph's picture, without coordinates or a format. Pure."""

from __future__ import annotations

import colorsys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from mray._api.dag_outline import ATTRIBUTE, CALL, END, INPUT_KIND, RESULT
from mray._inside.plans import select

#: A kind of box: the creation of an actor.
MAKE = "make"

#: Kinds of edges besides the transports: a value is split or assembled; consecutive calls of an actor.
PART, ORDER = "part", "order"
#: An edge of a graph that is not compiled: its transport is not chosen yet.
VALUE = "value"


@dataclass(frozen=True)
class Box:
    number: int
    kind: str
    title: str
    subtitle: str = ""
    #: Its description, as in Ray, line by line.
    lines: tuple[str, ...] = ()
    #: "" for none.
    owner: str = ""
    #: Boxes of one group meet; -1: none.
    group: int = -1
    notes: tuple[str, ...] = ()
    is_bottleneck: bool = False
    #: DAG nodes that are drawn as this one.
    times: int = 1
    #: Its text in text drawings, if not derived from its lines and title.
    sentence: str = ""
    word: str = ""


@dataclass(frozen=True)
class Edge:
    """A value sent from one DAG node to another, by their numbers."""

    source: int
    target: int
    #: A transport, or `PART`, `ORDER` or `VALUE`.
    kind: str
    label: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    #: Whether an accelerator carries it, or the user wants one to.
    accelerated: bool = False
    #: -1: none.
    channel: int = -1


@dataclass(frozen=True)
class FigureOwner:
    """An actor or a worker that runs calls. All of its boxes have one colour."""

    key: str
    title: str
    color: str


@dataclass(frozen=True)
class Figure:
    name: str
    boxes: tuple[Box, ...]
    edges: tuple[Edge, ...]
    owners: tuple[FigureOwner, ...]
    why: str = ""

    def color_of(self, box: Box) -> str:
        owned = next((owner.color for owner in self.owners if owner.key == box.owner), None)
        return owned or COLORS.get(box.kind, "#EEEEEE")

    @property
    def ends(self) -> list[tuple[int, int]]:
        places = {box.number: place for place, box in enumerate(self.boxes)}
        return [(places[edge.source], places[edge.target]) for edge in self.edges]

    @property
    def groups(self) -> list[list[Box]]:
        numbers = sorted({box.group for box in self.boxes} - {-1})
        return [[box for box in self.boxes if box.group == number] for number in numbers]

    @property
    def kinds(self) -> tuple[str, ...]:
        there = {edge.kind for edge in self.edges}
        return tuple(kind for kind in STROKES if kind in there)

    @property
    def has_bottleneck(self) -> bool:
        return any(box.is_bottleneck for box in self.boxes)

    @property
    def bottleneck(self) -> str:
        return f"bottleneck: {self.why}" if self.why else "bottleneck"


#: From this number of boxes side by side, repeated ones are drawn as one.
MOST_REPEATED = 12


def collapsed(figure: Figure) -> Figure:
    """The figure with one box for boxes with the same text, owner and neighbours, where many stand side by side.

    The box has the number of the first and shows the count; boxes that are measured or meet others are not merged.
    """
    above: dict[int, list[tuple[int, str]]] = {box.number: [] for box in figure.boxes}
    below: dict[int, list[tuple[int, str]]] = {box.number: [] for box in figure.boxes}
    for edge in figure.edges:
        above[edge.target].append((edge.source, edge.kind))
        below[edge.source].append((edge.target, edge.kind))
    alike: dict[object, list[Box]] = {}
    beside: Counter[object] = Counter()
    for box in figure.boxes:
        around = (tuple(sorted(above[box.number])), tuple(sorted(below[box.number])))
        is_alone = box.group >= 0 or box.notes or box.is_bottleneck or not any(around)
        alike.setdefault(box.number if is_alone else (around, box.kind, box.title, box.subtitle, box.lines, box.owner), []).append(box)
        beside[around] += 1
    if max(beside.values(), default=0) <= MOST_REPEATED:
        return figure
    stands_for = {box.number: boxes[0].number for boxes in alike.values() for box in boxes}
    made = []
    for first, *others in alike.values():
        if not others:
            made.append(first)
            continue
        numbers = [first.number, *(box.number for box in others)]
        which = ", ".join(map(str, numbers if len(numbers) <= 3 else [*numbers[:2], "...", numbers[-1]]))
        times = f"×{len(numbers)}: {which}"
        made.append(replace(first, title=f"{first.title} ×{len(numbers)}", lines=(*first.lines, times), times=len(numbers)))
    edges = {(stands_for[e.source], stands_for[e.target], e.kind): e for e in reversed(figure.edges)}
    kept = [replace(e, source=source, target=target) for (source, target, _kind), e in reversed(edges.items())]
    return replace(figure, boxes=tuple(sorted(made, key=lambda box: box.number)), edges=tuple(kept))


@dataclass(frozen=True)
class Stroke:
    color: str
    meaning: str
    #: Lengths of dashes and gaps, as in SVG; "" for a solid line.
    dashes: str = ""
    width: float = 1.3
    #: Whether values of accelerators can stay on them.
    accelerated: bool = False


#: Distinguishable with red-green colour blindness.
STROKES = {
    VALUE: Stroke("#444444", "value"),
    select.SHM: Stroke("#444444", "shm: ring in shared memory"),
    select.LOCAL: Stroke("#444444", "local: inside one process, no copy", "2 3"),
    select.COMMUNICATOR: Stroke("#AA3377", "communicator: tensors by a communicator of the user", width=2.2),
    select.NCCL: Stroke("#0050B0", "nccl: tensors from GPU to GPU", width=2.2, accelerated=True),
    select.CUDA_IPC: Stroke("#008060", "cuda_ipc: device memory that both map", width=2.2, accelerated=True),
    select.PINNED: Stroke("#A06000", "pinned: through pinned host memory", width=2.2, accelerated=True),
    PART: Stroke("#999999", "a value taken apart"),
    ORDER: Stroke("#999999", "the actor it runs on, or the call before it", "6 4"),
}

#: Fills of boxes without an owner.
COLORS = {INPUT_KIND: "#D6EAF8", ATTRIBUTE: "#D6EAF8", RESULT: "#FAD7A0", END: "#FCF3CF", MAKE: "#EEEEEE", CALL: "#EEEEEE"}

#: Black text is readable on them; distinguishable with red-green colour blindness.
_FILLS = ("#A6CEE3", "#FDBF6F", "#B2DF8A", "#CAB2D6", "#FB9A99", "#99D8C9", "#FFE66D", "#D9B99B", "#F7B6D2", "#C7C7C7")
_GOLDEN = 0.618033988749895


def owner_colors(count: int) -> list[str]:
    made = list(_FILLS[:count])
    for number in range(count - len(made)):
        red, green, blue = colorsys.hls_to_rgb(number * _GOLDEN % 1.0, 0.74 + 0.06 * (number % 3), 0.62)
        made.append(f"#{round(red * 255):02X}{round(green * 255):02X}{round(blue * 255):02X}")
    return made


def owners_of(titles: Iterable[tuple[str, str]]) -> tuple[FigureOwner, ...]:
    each = list(titles)
    return tuple(FigureOwner(key, title, color) for (key, title), color in zip(each, owner_colors(len(each)), strict=True))


def stroke_of(kind: str) -> Stroke:
    return STROKES.get(kind) or Stroke("#444444", kind)
