"""Copies: channels of its own for a process that executes another's graph often.

    process that got the graph (the copier)      process that compiled it (the owner)      each actor
    executions by way of the owner ────────────▶ `mray._graph.caller.remote` ────────────▶ its program
    after so many of them:
    COPY ──────────────────────────────────────▶ CompiledGraph.recipe_for
         ◀────────────────────────────── Recipe
    ALLOCATE (`Allocation`) ─────────────────────────────────────────────────────────────▶ one more program, of the same steps
    from the first moment at which none of its executions is on its way to the owner: straight to the actors
         ◀─────── RECALL: a profile begins     the copy takes no more; by way of the owner again, once those under way have settled
         ◀─────── ENDED, or the owner's death  the copy ends

A copy is a graph like any other, to the actors and to the process that has it: it has their limits, errors and ends. It is made bit by bit,
at the executions that come meanwhile, which do not wait for its actors' main threads; what goes wrong in the making leaves the way by the
owner.

The executions of one process keep their order at every actor. Those of several processes follow each other at an actor, in an order that
may be another one at the next; and in a graph whose actors wait in the middle of an execution they would meet there: such graphs are not
copied (`may_be_copied`).
"""

from __future__ import annotations

import contextlib
import pickle
import threading
import uuid
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from mray._channel.select import SHM
from mray._graph.caller.allocation import Allocation, Recipe
from mray._graph.caller.compiled import CompiledGraph
from mray._graph.caller.limits import copied
from mray._graph.host import weakly
from mray._graph.messages import COPY
from mray._graph.plan import COMPUTE, DRIVER, READ, WRITE, Operation, Plan
from mray._ipc.handlers import is_of_handler
from mray.exceptions import RayChannelError

if TYPE_CHECKING:
    from mray._graph.caller.handle import GraphHandle
    from mray._graph.host import GraphHost, Pending

#: A copy is wanted after so many executions by way of the owner.
AFTER = 16
#: Bytes of constants that an owner keeps for copies.
MOST_CONSTANTS = 1 << 20


# ----------------------------------------------------------------------------- in the process that compiles
def may_be_copied(plan: Plan, constants: Mapping[str, tuple[int, bytes]]) -> bool:
    """Whether another process may have channels of its own to the actors.

    Not where actors wait for each other, or for a value, in the middle of an execution, nor where tensors go by a device: its memory was
    tried between the processes that there were.
    """
    if plan.groups or any(step.group >= 0 for step in plan.graph.steps):
        return False
    if any(channel.transport != SHM or channel.transfer.device != "default" for channel in plan.channels):
        return False
    if sum(len(payload) for _form, payload in constants.values()) > MOST_CONSTANTS:
        return False
    return all(_runs_through(operations) for operations in plan.schedule.values())


def _runs_through(operations: Sequence[Operation]) -> bool:
    """Whether an actor reads everything before it computes anything, and writes after that."""
    kinds = [operation.kind for operation in operations]
    return kinds == sorted(kinds, key=(READ, COMPUTE, WRITE).index)


# ----------------------------------------------------------------------------------- in the process that copies
class Copying:
    """One copy, from the first execution by way of the owner until it takes executions. Any thread; no method waits."""

    def __init__(self, host: GraphHost, handle: GraphHandle) -> None:
        self._host = host
        self._handle = handle
        self._executions = 0
        #: Held while a step is taken.
        self._lock = threading.Lock()
        self._asked: Pending | None = None
        self._made: Allocation | None = None
        self._parts: list[Pending] = []
        #: The copy, once it can take executions; it may have ended since.
        self.graph: CompiledGraph | None = None
        #: Why there is no copy, or will be none any more: told by the owner, or found in the making.
        self._over: Exception | None = None

    def advance(self) -> CompiledGraph | None:
        """Take the next step, at an execution; returns `graph`."""
        if self.graph is None and self._over is None and self._lock.acquire(False):
            try:
                self._step()
            except BaseException as error:
                self.graph = None  # it goes by itself
                self._over = RayChannelError("The copy could not be made.")
                if not isinstance(error, Exception) or is_of_handler(error):
                    raise
            finally:
                self._lock.release()
                self._clean_up()
        return self.graph

    def _step(self) -> None:
        handle = self._handle
        if self._asked is None:
            self._executions += 1
            if self._executions > AFTER:
                self._asked = self._host.request(handle.owner, COPY, handle.plan.graph_id.encode())
        elif self._made is None:
            if self._asked.done():
                recipe: Recipe | None = pickle.loads(self._asked.result())
                if recipe is None:
                    self._executions, self._asked = 0, None
                else:
                    self._ask_for_parts(recipe)
        elif all(part.done() for part in self._parts):
            self._made.open(self._parts)
            watch = self._host.watch_process(handle.owner, "", weakly(self._on_death))
            weakref.finalize(self, watch).atexit = False
            self.graph = CompiledGraph(self._host, self._made.plan, self._made, copied(handle.limits), names=handle.names)
            # POINT graph copied

    def _ask_for_parts(self, recipe: Recipe) -> None:
        handle = self._handle
        plan = replace(handle.plan, graph_id=uuid.uuid4().hex, copy_of=handle.plan.graph_id)
        processes = {endpoint: process for endpoint, process in handle.processes.items() if endpoint != DRIVER}
        made = self._made = Allocation(self._host, plan, recipe.actors, processes)
        self._parts = made.ask(recipe.constants)

    def _on_death(self, _error: Exception) -> None:
        self.end(died(self._handle))

    def end(self, error: Exception) -> None:
        """There is to be no copy any more: those who wait for it get the error. In the reading thread."""
        self._over = error
        self._clean_up()

    def _clean_up(self) -> None:
        """Give back what was made, if it is over. The thread that takes a step does it after that."""
        if self._over is None or not self._lock.acquire(False):
            return
        try:
            made, self._made = self._made, None
            if self.graph is not None:
                self.graph.end_with(self._over)
            elif made is not None:
                _give_back(made)
        finally:
            self._lock.release()

    def __del__(self) -> None:
        made = getattr(self, "_made", None)
        if made is not None and self.graph is None:
            with contextlib.suppress(Exception):  # the session may be gone by now
                self._host.defer(lambda: _give_back(made))


def _give_back(made: Allocation) -> None:
    with contextlib.suppress(Exception):
        made.stop()
        made.release()


def died(handle: GraphHandle) -> RayChannelError:
    """The error of those who use a graph whose owner has died."""
    return RayChannelError(f"The process {handle.owner} that compiled the graph {handle.plan.graph_id} has died.")
