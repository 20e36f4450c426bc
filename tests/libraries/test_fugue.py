"""Fugue, whose engine of the name ``ray`` is written on Ray Data, on mray and on Ray."""

from __future__ import annotations

from types import ModuleType
from typing import Any, Dict, List  # noqa: UP035  (fugue reads annotations, and knows these)

import pytest

from tests.full import full

Rows = List[Dict[str, Any]]  # noqa: UP006


@full
def test_a_function_of_data_frames_is_mapped_by_tasks_whole_and_by_group(ray_session: ModuleType) -> None:
    fugue = pytest.importorskip("fugue")
    pytest.importorskip("duckdb")
    pytest.importorskip("fugue_ray")
    import pandas as pd

    def add(rows: Rows, number: int) -> Rows:
        return [{**row, "more": row["value"] + number} for row in rows]

    def first(rows: Rows) -> Rows:
        return [min(rows, key=lambda row: row["value"])]

    frame = pd.DataFrame({"key": [0, 1, 0, 1], "value": [4, 3, 2, 1]})
    found = fugue.transform(frame, add, schema="*,more:long", params={"number": 5}, engine="ray")
    assert type(found).__module__ == "ray.data.dataset"
    assert sorted(found.to_pandas().more) == [6, 7, 8, 9]
    groups = fugue.transform(frame, first, schema="*", partition={"by": "key"}, engine="ray", as_fugue=True)
    assert sorted(map(tuple, groups.as_array())) == [(0, 2), (1, 1)]
