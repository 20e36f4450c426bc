"""The actors of one graph as its callers see them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mray._graph.host import GraphHost, Pending
from mray._graph.plan import DRIVER, Plan


@dataclass(frozen=True)
class Participants:
    host: GraphHost
    plan: Plan
    #: Actor class names and processes, by endpoint.
    classes: Mapping[str, str]
    processes: Mapping[str, str]

    def name(self, endpoint: str, driver: str = "the caller") -> str:
        if endpoint == DRIVER:
            return driver
        return f"{self.classes[endpoint]}({endpoint[:8]})" if self.classes.get(endpoint) else endpoint

    def ask(self, verb: str, payload: bytes, patience: float | None) -> dict[str, bytes | str]:
        """endpoint -> its answer, or a clause that says why there is none after `patience` seconds."""
        asked: dict[str, Pending | str] = {}
        for endpoint in self.plan.graph.actors:
            try:
                asked[endpoint] = self.host.request(self.processes[endpoint], verb, payload)
            except Exception as error:
                asked[endpoint] = f"is dead: {error}"
        self.host.wait_until(lambda: all(isinstance(each, str) or each.ready() for each in asked.values()), patience)
        return {endpoint: each if isinstance(each, str) else _answer(each, patience) for endpoint, each in asked.items()}


def late(patience: float | None) -> str:
    return f"does not answer within {patience or 0:g} s: its process is stopped, or holds the interpreter lock"


def _answer(pending: Pending, patience: float | None) -> bytes | str:
    if not pending.ready():
        return late(patience)
    try:
        return pending.result()
    except Exception as error:
        return f"is dead: {error}"
