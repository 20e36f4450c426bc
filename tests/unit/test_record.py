"""Records are named tuples but for their price, and for values that are shown cut short."""

from __future__ import annotations

import copy
import pickle
from typing import NamedTuple

import pytest

from mray._common.record import Record


class Point(Record):
    """A place."""

    x: int
    y: int
    name: str = "a point"

    @property
    def sum(self) -> int:
        return self.x + self.y


class Nothing(Record):
    """No field."""


class Counterpart(NamedTuple):
    """A place."""

    x: int
    y: int
    name: str = "a point"


@pytest.mark.parametrize("kind", [Point, Counterpart])
def test_its_items_have_names_and_are_a_tuples(kind: type) -> None:
    point = kind(1, y=2)
    assert point == (1, 2, "a point") and hash(point) == hash((1, 2, "a point"))
    assert (point.x, point.y, point.name) == tuple(point)
    assert (kind._fields, kind._field_defaults, kind.__doc__) == (("x", "y", "name"), {"name": "a point"}, "A place.")
    assert point._replace(x=5) == kind(5, 2) == kind._make((5, 2, "a point"))
    assert point._asdict() == {"x": 1, "y": 2, "name": "a point"}
    assert repr(point) == f"{kind.__name__}(x=1, y=2, name='a point')"
    assert not hasattr(point, "__dict__")
    match point:
        case (1, _, name):
            assert name == "a point"


@pytest.mark.parametrize("kind", [Point, Counterpart])
@pytest.mark.parametrize(
    ("values", "named"),
    [((), {}), ((1,), {}), ((1, 2, "b", 4), {}), ((1, 2), {"z": 3}), ((1, 2), {"x": 1}), ((), {"x": 1})],
)
def test_it_takes_one_value_for_each_field(kind: type, values: tuple, named: dict) -> None:
    with pytest.raises(TypeError):
        kind(*values, **named)


def test_the_error_of_a_wrong_call_names_the_fields() -> None:
    with pytest.raises(TypeError, match=r"Point has the fields x, y, name; given were 1 and \['z'\]"):
        Point(1, z=3)  # type: ignore[call-arg]


def test_it_may_have_further_members_and_no_field() -> None:
    assert Point(1, 2).sum == 3
    assert Nothing() == () and repr(Nothing()) == "Nothing()"


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_it_is_copied_and_pickled(again) -> None:
    made = again(Point(1, 2, "b"))
    assert made == (1, 2, "b") and type(made) is Point


def test_long_values_are_shown_cut_short() -> None:
    assert len(repr(Point(1, 2, "b" * 10_000))) < 100
