"""The order in which the calls of a graph run. Pure.

The calls of one actor run in the order in which they were bound. Only where the dependencies forbid that does a ready call go first.
Calls that synchronize (one group) are consecutive, so that no two groups can wait for each other.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from mray._common.record import Record


class BoundCall(Record):
    """One call; `needs` are the indices of the calls whose results it uses. Calls of the group -1 synchronize with none."""

    actor: str
    bind_index: int
    needs: Collection[int]
    group: int = -1


def order_calls(calls: Sequence[BoundCall]) -> list[int]:
    """The indices of the calls in the order to run them, without those that wait for each other in a cycle."""
    queues: dict[str, list[int]] = {}
    groups: dict[int, list[int]] = {}
    for place in sorted(range(len(calls)), key=lambda place: (calls[place].bind_index, place)):
        queues.setdefault(calls[place].actor, []).append(place)
        if calls[place].group >= 0:
            groups.setdefault(calls[place].group, []).append(place)
    done: set[int] = set()
    ordered: list[int] = []

    def together(place: int) -> list[int]:
        return [place] if calls[place].group < 0 else groups[calls[place].group]

    def is_ready(place: int) -> bool:
        return all(done.issuperset(calls[each].needs) for each in together(place))

    while len(ordered) < len(calls):
        heads = [queue[0] for queue in queues.values() if queue]
        ready = [place for place in heads if is_ready(place) and all(each in heads for each in together(place))]
        if not ready:
            ready = [place for queue in queues.values() for place in queue if is_ready(place)]
        if not ready:
            break
        for place in together(min(ready, key=lambda place: (calls[place].bind_index, place))):
            queues[calls[place].actor].remove(place)
            done.add(place)
            ordered.append(place)
    return ordered
