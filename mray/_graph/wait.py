"""`mray.wait` on results of graphs, alone or together with objects. In the thread that waits; nothing is consumed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mray._api.object_ref import ObjectRef
from mray._common.clock import now
from mray._graph.ref import Claim


def wait(refs: Sequence[Any], num_returns: int, timeout: float | None) -> tuple[list[Any], list[Any]]:
    """See `mray.wait`; one of the refs at least is a graph's.

    A ref whose execution has failed is ready, and so is every ref of a graph that has ended: `get` would not wait.
    RayCgraphCapacityExceeded when a graph has more results than it may keep before one that is waited for.
    """
    claims = [ref for ref in refs if isinstance(ref, Claim)]
    objects = [ref for ref in refs if isinstance(ref, ObjectRef)]
    waiting = next((claim for claim in claims if claim.runs_here), claims[0])
    host = waiting.host
    for ref in objects:
        host.fetch(ref)
    deadline = None if timeout is None else now() + timeout

    def count() -> int:
        return sum(claim.ready for claim in claims) + sum(host.is_ready(ref) for ref in objects)

    def decides() -> bool:
        return count() >= num_returns or any(claim.may_be_ready() for claim in claims if not claim.ready)

    while True:
        for claim in claims:
            claim.look()
        if count() >= num_returns or not waiting.wait_until(decides, deadline):
            break
    ready: list[Any] = []
    rest: list[Any] = []
    for ref in refs:
        there = ref.ready if isinstance(ref, Claim) else host.is_ready(ref)
        (ready if there and len(ready) < num_returns else rest).append(ref)
    return ready, rest
