"""Placement groups and other placement options of tasks and actors, for the native engine.

Options are checked here, at the call; the node's scheduler (`mray._decide.scheduler.placement`) owns the groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mray._api.object_ref import ObjectRef
from mray._api.placement_group import PlacementGroup
from mray._common import messages as m
from mray._common.amounts import readable
from mray._common.ids import PlacementGroupID, new_object_id, new_placement_group_id
from mray._common.labels import selects
from mray._common.placement_options import NODE_ID_LABEL, check_fit, is_group_strategy, launch_hooks, why_no_node
from mray._objects.remote_error import pickle_error
from mray.exceptions import PlacementGroupUnschedulableError, RaySystemError, TaskPlacementGroupRemoved, TaskUnschedulableError

if TYPE_CHECKING:
    from mray._runtime.client.calls import Call
    from mray._runtime.client.client import Client


#: A task's or actor's group, whether children follow it there, its bundles.
Current = tuple[bytes, bool, list[dict[str, float]]]


class PlacementCalls:
    client: Client

    def create_placement_group(
        self, bundles: list[dict[str, float]], strategy: str, name: str, detached: bool, selectors: list[dict[str, str]] | None
    ) -> bytes:
        client = self.client
        labels = labels_of(client.info)
        unmet = [selector for selector in selectors or () if not selects(selector, labels)]
        impossible = f"this machine has the labels {labels}, and a bundle asks for {unmet[0]}" if unmet else None
        group_id = new_placement_group_id()
        spec = {
            "bundles": bundles,
            "strategy": strategy,
            "name": name,
            "namespace": client.info["namespace"],
            "detached": detached,
            "impossible": impossible,
        }
        # Waits, so that any process that receives the group finds it at the node.
        impossible = client.ask(m.GROUP_CREATE, group_id, spec)
        if impossible is not None:
            client.unschedulable.report(impossible)
        return group_id

    def remove_placement_group(self, group_id: bytes) -> None:
        client = self.client
        with client.lock:
            client.leases.give_back_idle()
        client.ask(m.GROUP_REMOVE, group_id)

    def placement_group_ready(self, group_id: bytes, value: Any) -> ObjectRef:
        client = self.client
        entry = client.entry()
        form, payload, refs = client.owner.freeze(value, client.process)

        def settle() -> None:
            if answer.error is None:
                entry.complete(form, payload, refs)
            else:
                entry.complete(m.FAILED, pickle_error(_group_error(answer.error)))

        with client.lock:
            answer = client.request(client.node, m.GROUP_AWAIT, group_id)
            answer.then(settle)
        return ObjectRef(new_object_id(), entry)

    def wait_placement_group(self, group_id: bytes, timeout: float) -> bool:
        client = self.client
        answer = client.request(client.node, m.GROUP_AWAIT, group_id)
        if not client.objects.wait_as_user(answer.ready, timeout):
            with client.lock:
                client.requests.forget(answer)
            return False
        if answer.error is None:
            return True
        error = _group_error(answer.error)
        if isinstance(error, TaskPlacementGroupRemoved):
            raise Exception(f"Placement group {PlacementGroupID(group_id)} does not exist.")  # as Ray raises
        if isinstance(error, PlacementGroupUnschedulableError):
            client.unschedulable.report(error.error_message)
            return False
        raise error


def _group_error(error: BaseException) -> BaseException:
    text = str(getattr(error, "client_exc", ""))
    if m.GROUP_REMOVED in text:
        return TaskPlacementGroupRemoved()
    if isinstance(error, RaySystemError) and "can never be created" in text:
        return PlacementGroupUnschedulableError(text)
    return error


class Refused:
    """Replaces the pool of tasks that can run nowhere."""

    awaits_arguments = False

    def __init__(self, client: Client, demand: dict[str, Any], text: str) -> None:
        #: Read by listings.
        self.client = client
        self.demand = demand
        self._text = text

    def submit(self, call: Call) -> None:
        call.source = self
        call.fail(TaskUnschedulableError(self._text))


def labels_of(info: Mapping[str, Any]) -> dict[str, str]:
    return {NODE_ID_LABEL: str(info["node_id"]), **(info.get("labels") or {})}


def refusal(client: Client, options: Mapping[str, Any], what: str, wanted: Mapping[str, float] | None) -> str | None:
    """Why the node can never run `what` with these complete options, or ``None``; also reported on stderr.

    `wanted`: what it takes from the machine itself, ``None`` if a placement group has that.
    """
    info = client.info
    there = info["resources"]
    for name, amount in () if wanted is None else wanted.items():
        if amount > there.get(name, 0.0):
            has = ", ".join(f"{key}: {readable(key, value)}" for key, value in sorted(there.items()) if not key.startswith("node:"))
            wish = f"{what} asks for {name}: {readable(name, amount)}"
            text = f"{wish}, and this machine has {{{has}}}. Ask for less, or declare more in init()."
            client.unschedulable.report(text)
            return text
    if options["scheduling_strategy"] is None and options["label_selector"] is None:
        return None
    why = why_no_node(options, str(info["node_id"]), labels_of(info))
    if why is not None:
        client.unschedulable.report(f"{what} can never be scheduled: {why}")
    return why


def is_fail_fast(options: Mapping[str, Any]) -> bool:
    """Whether these complete options ask for an error when the node is full."""
    strategy = options["scheduling_strategy"]
    return type(strategy).__name__ == "NodeAffinitySchedulingStrategy" and bool(strategy._fail_on_unavailable)


def place_of(
    options: Mapping[str, Any],
    current: Current | None,
    launched: Any,
    resources: Mapping[str, float],
    placement: Mapping[str, float],
) -> tuple[tuple[bytes, int], Current] | None:
    """(group, bundle index or -1) and the group that will be current there; ``None``: no group.

    ValueError for an unknown index and for demands that can never fit; launch hooks may raise as well.
    """
    place = _place_of(options, current, launched.name, resources, placement)
    for hook in launch_hooks:
        hook(launched, resources, place, options["scheduling_strategy"])
    return place


def _place_of(
    options: Mapping[str, Any], current: Current | None, what: str, resources: Mapping[str, float], placement: Mapping[str, float]
) -> tuple[tuple[bytes, int], Current] | None:
    strategy = options["scheduling_strategy"]
    group: Any = None
    index, capture = -1, None
    if is_group_strategy(strategy):
        group, index = strategy.placement_group, strategy.placement_group_bundle_index
        capture = strategy.placement_group_capture_child_tasks
    elif strategy is None:
        group, index = options["placement_group"], options["placement_group_bundle_index"]
        capture = options["placement_group_capture_child_tasks"]
        if group == "default" and current is None and index == -1:
            return None
    if capture is None:
        capture = current is not None and current[1]
    if group == "default":
        group = PlacementGroup(PlacementGroupID(current[0]), current[2]) if capture and current is not None else None
    if not group or group.is_empty:
        if index != -1:
            raise ValueError("If placement group is not set, the value of bundle index must be -1.")
        return None
    if not -1 <= index < group.bundle_count:
        raise ValueError(f"placement group bundle index {index} is invalid. Valid placement group indexes: 0-{group.bundle_count}")
    check_fit(what, resources, placement, index, group.bundle_specs)
    group_id = group.id.binary()
    return (group_id, index), (group_id, bool(capture), group.bundle_specs)


def affinity_of(options: Mapping[str, Any], info: Mapping[str, Any]) -> Any:
    """The checked option ``cpu_affinity``; ValueError for a CPU that the session may not use."""
    wanted = options["cpu_affinity"]
    if isinstance(wanted, list):
        missing = sorted(set(wanted) - set(info["cpus"]))
        if missing:
            raise ValueError(f"cpu_affinity={wanted}: the session may not run on the CPUs {missing}; it has {info['cpus']}.")
    return wanted
