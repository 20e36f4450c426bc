"""Where tasks and actors run: values of the option ``scheduling_strategy``, besides ``"DEFAULT"`` and ``"SPREAD"``.

The one node satisfies a strategy, or the task fails immediately with TaskUnschedulableError (an actor with ActorUnschedulableError).
"""

from __future__ import annotations

from typing import Any

from mray._api.placement_group import PlacementGroup
from mray._common.ids import NodeID

__all__ = [
    "DoesNotExist",
    "Exists",
    "In",
    "LabelMatchExpressionsT",
    "NodeAffinitySchedulingStrategy",
    "NodeLabelSchedulingStrategy",
    "NotIn",
    "PlacementGroupSchedulingStrategy",
    "SchedulingStrategyT",
]


class PlacementGroupSchedulingStrategy:
    """In a placement group (``None``: in none), in one of its bundles (-1: in any), and its children too if they are captured."""

    def __init__(
        self,
        placement_group: PlacementGroup | None,
        placement_group_bundle_index: int = -1,
        placement_group_capture_child_tasks: bool | None = None,
    ) -> None:
        self.placement_group = placement_group
        self.placement_group_bundle_index = placement_group_bundle_index
        self.placement_group_capture_child_tasks = placement_group_capture_child_tasks


class NodeAffinitySchedulingStrategy:
    """On the node with this id (`mray.nodes`); anywhere if no such node exists and `soft` is true."""

    def __init__(self, node_id: str | NodeID, soft: bool, _spill_on_unavailable: bool = False, _fail_on_unavailable: bool = False) -> None:
        self.node_id = node_id if isinstance(node_id, str) else node_id.hex()
        self.soft = soft
        self._spill_on_unavailable = _spill_on_unavailable
        self._fail_on_unavailable = _fail_on_unavailable
        try:
            invalid = NodeID.from_hex(self.node_id).is_nil()
        except ValueError:
            invalid = True
        if invalid:
            raise ValueError(
                f"Invalid node_id '{self.node_id}'. Node ID must be a valid hex string. To get a list of all nodes and their IDs in your "
                "cluster, use ray.nodes()."
            )
        if _spill_on_unavailable and not soft:
            raise ValueError(
                "_spill_on_unavailable cannot be set when soft is False. Please set soft to True to use _spill_on_unavailable."
            )
        if _fail_on_unavailable and soft:
            raise ValueError("_fail_on_unavailable cannot be set when soft is True. Please set soft to False to use _fail_on_unavailable.")


def _values(operator: str, values: tuple[Any, ...]) -> list[str]:
    example = f'{operator}("value1", "value2")'
    if not values:
        raise ValueError(f"The variadic parameter of the {operator} operator must be a non-empty tuple: e.g. {example}.")
    for index, value in enumerate(values):
        if not isinstance(value, str):
            raise ValueError(
                f"Type of value in position {index} for the {operator} operator must be str (e.g. {example}) but got {value} of type "
                f"{type(value)}."
            )
    return list(values)


class In:
    """The label has one of these values."""

    def __init__(self, *values: str) -> None:
        self.values = _values("In", values)


class NotIn:
    """The label has none of these values."""

    def __init__(self, *values: str) -> None:
        self.values = _values("NotIn", values)


class Exists:
    """The node has the label."""


class DoesNotExist:
    """The node does not have the label."""


_Operator = In | NotIn | Exists | DoesNotExist


class _LabelMatchExpression:
    def __init__(self, key: str, operator: _Operator) -> None:
        self.key = key
        self.operator = operator


class NodeLabelSchedulingStrategy:
    """On a node whose labels meet all of `hard`; `soft` has no effect."""

    def __init__(self, hard: dict[str, _Operator] | None, *, soft: dict[str, _Operator] | None = None) -> None:
        self.hard = _expressions(hard, "hard")
        self.soft = _expressions(soft, "soft")
        if not (self.hard or self.soft):
            raise ValueError("The `hard` and `soft` parameter of NodeLabelSchedulingStrategy cannot both be empty.")


def _expressions(given: Any, parameter: str) -> list[_LabelMatchExpression]:
    if given is None:
        return []
    example = '(e.g. {"key1": In("value1")})'
    if not isinstance(given, dict):
        raise ValueError(f"The {parameter} parameter must be a map {example} but got type {type(given)}.")
    for key, value in given.items():
        if not isinstance(key, str):
            raise ValueError(f"The map key of the {parameter} parameter must be of type str {example} but got {key} of type {type(key)}.")
        if not isinstance(value, (In, NotIn, Exists, DoesNotExist)):
            raise ValueError(
                f"The map value for key {key} of the {parameter} parameter must be one of the `In`, `NotIn`, `Exists` or `DoesNotExist` "
                f"operator {example} but got {value} of type {type(value)}."
            )
    return [_LabelMatchExpression(key, value) for key, value in given.items()]


#: Label -> condition.
LabelMatchExpressionsT = dict[str, In | NotIn | Exists | DoesNotExist]
SchedulingStrategyT = (
    None | str | PlacementGroupSchedulingStrategy | NodeAffinitySchedulingStrategy | NodeLabelSchedulingStrategy  # "DEFAULT", "SPREAD"
)
