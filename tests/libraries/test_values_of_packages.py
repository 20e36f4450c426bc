"""Values of packages that the step of Ray's libraries has: what is read is what cloudpickle makes of them."""

from __future__ import annotations

import pytest

from mray._objects.serializer import deserialize, serialize
from tests.values.description import describe, difference
from tests.values.kinds import FAMILIES, make, wanted

for _name in FAMILIES.get("polars", ()):  # polars opens files of its own when it first works, which no test has left behind
    wanted("polars", _name)


@pytest.mark.parametrize("family", [family for family in ("polars", "pandas", "Arrow") if family in FAMILIES])
def test_frames_and_tables_arrive_as_they_were(family: str) -> None:
    faults = {}
    for name in FAMILIES[family]:
        expected = wanted(family, name)
        try:
            packed = serialize(make(family, name))
            arrived = describe(deserialize(packed.form, packed.to_bytes()))
        except Exception as error:
            if not expected.error:
                faults[name] = repr(error)
            continue
        if arrived not in expected.words:
            faults[name] = difference(expected.words[0], arrived) if expected.words else "arrived, and cloudpickle refuses it"
    assert not faults
