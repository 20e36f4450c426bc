"""Modin, which asks for ``ray`` alone: its data frames are in the object store, on mray and on Ray."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from tests.full import full


@full
def test_data_frames_of_modin_are_computed_by_tasks(ray_session: ModuleType, tmp_path: Path) -> None:
    config = pytest.importorskip("modin.config")
    config.Engine.put("ray")
    config.NPartitions.put(4)
    import modin.pandas as pd

    frame = pd.DataFrame({"key": [number % 7 for number in range(1000)], "value": [float(number) for number in range(1000)]})
    assert frame.groupby("key").value.sum().sum() == 499_500
    assert frame.merge(pd.DataFrame({"key": [1, 2], "name": ["a", "b"]}), on="key").shape == (286, 3)
    assert list(frame.sort_values("value", ascending=False).head(2).value) == [999, 998]
    assert frame.apply(lambda row: row.key + row.value, axis=1).sum() == frame.key.sum() + 499_500
    frame.to_csv(tmp_path / "table.csv", index=False)
    assert pd.read_csv(tmp_path / "table.csv").value.max() == 999
    with pytest.raises(ZeroDivisionError):
        frame.apply(lambda row: 1 / 0, axis=1).sum()
