"""Waiting in a process that may itself run an actor of the awaited graph."""

from __future__ import annotations

from collections.abc import Callable

from mray._common.clock import now
from mray._graph.host import GraphHost


def wait_until(host: GraphHost, runs_here: bool, predicate: Callable[[], bool], deadline: float | None) -> bool:
    """Wait until the predicate holds or the deadline has passed; its last value.

    `runs_here`: an actor of the graph lives in this very process. If this thread runs the actor's program, it does so while it
    waits.
    """
    service = host.service
    while True:
        remaining = None if deadline is None else max(deadline - now(), 0.0)
        if not runs_here or service is None or not service.is_its_thread():
            return host.wait_until(predicate, remaining)
        service.run(predicate)
        if predicate():
            return True
        if not host.wait_until(lambda: predicate() or service.ready(), remaining):
            return False
