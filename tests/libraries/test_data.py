"""Ray Data: sources, transformations, sinks and consumers, on mray and on Ray."""

from __future__ import annotations

import glob
import json
import os
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.full import full

RAY = os.environ.get("MRAY_TEST_ENGINE") == "ray"
pytest.importorskip("ray.data")
pytest.importorskip("pyarrow")
SESSION = {"num_gpus": 1}


@pytest.fixture
def data(ray_session: ModuleType) -> ModuleType:
    """``ray.data``, with a session of 4 CPUs and a declared GPU."""
    import ray.data

    ray.data.DataContext.get_current().enable_progress_bars = False
    return ray.data


def column(dataset: Any, name: str = "id") -> list[Any]:
    """The values of a column, in the dataset's order."""
    return [row[name] for row in dataset.take_all()]


# ---------------------------------------------------------------------------------------------- sources
@full
def test_tables_come_from_items_numpy_pandas_and_arrow(data: ModuleType) -> None:
    import numpy as np
    import pandas as pd
    import pyarrow as pa

    assert sorted(column(data.from_items([{"a": 1}, {"a": 2}]), "a")) == [1, 2]
    assert column(data.from_items([3]), "item") == [3]
    arrays = data.from_numpy(np.arange(6).reshape(3, 2))
    assert [list(row) for row in column(arrays, "data")] == [[0, 1], [2, 3], [4, 5]]
    frame = pd.DataFrame({"x": [1, 2], "y": ["p", "q"]})
    assert data.from_pandas(frame).to_pandas().to_dict("list") == {"x": [1, 2], "y": ["p", "q"]}
    assert data.from_pandas([frame, frame]).count() == 4
    table = pa.table({"z": [1.5, 2.5]})
    assert data.from_arrow(table).sum("z") == 4
    assert data.from_blocks([frame]).schema().names == ["x", "y"]


def test_a_range_has_as_many_blocks_as_it_is_told(data: ModuleType) -> None:
    assert data.range(100, override_num_blocks=5).materialize().num_blocks() == 5
    assert data.range_tensor(4, shape=(2, 2)).take(1)[0]["data"].shape == (2, 2)


@pytest.mark.parametrize("form", ["parquet", pytest.param("csv", marks=full), pytest.param("json", marks=full)])
def test_what_is_written_is_read_again(data: ModuleType, tmp_path: Path, form: str) -> None:
    table = data.range(100, override_num_blocks=4).map(lambda row: {"id": row["id"], "text": f"number {row['id']}"})
    getattr(table, f"write_{form}")(str(tmp_path))
    assert len(glob.glob(f"{tmp_path}/*.{form}")) >= 1
    back = getattr(data, f"read_{form}")(str(tmp_path)).sort("id")
    assert back.take(2) == [{"id": 0, "text": "number 0"}, {"id": 1, "text": "number 1"}]
    assert back.count() == 100


@full
def test_parquet_is_read_in_columns_and_written_in_partitions(data: ModuleType, tmp_path: Path) -> None:
    table = data.range(30).map(lambda row: {"id": row["id"], "rest": row["id"] % 3})
    table.write_parquet(str(tmp_path), partition_cols=["rest"])
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["rest=0", "rest=1", "rest=2"]
    assert data.read_parquet(str(tmp_path), columns=["id"]).sum("id") == 435
    assert set(data.read_parquet(str(tmp_path)).schema().names) == {"id", "rest"}


@full
def test_text_bytes_and_numpy_files_are_read(data: ModuleType, tmp_path: Path) -> None:
    import numpy as np

    (tmp_path / "a.txt").write_text("one\ntwo\n\nthree\n")
    assert column(data.read_text(str(tmp_path / "a.txt")), "text") == ["one", "two", "three"]
    assert column(data.read_binary_files(str(tmp_path / "a.txt"), include_paths=True), "bytes") == [b"one\ntwo\n\nthree\n"]
    np.save(tmp_path / "b.npy", np.arange(5))
    assert column(data.read_numpy(str(tmp_path / "b.npy")), "data") == [0, 1, 2, 3, 4]
    data.from_numpy(np.arange(5)).write_numpy(str(tmp_path / "out"), column="data")
    assert sorted(column(data.read_numpy(str(tmp_path / "out")), "data")) == [0, 1, 2, 3, 4]


@full
def test_images_are_read_transformed_and_written(data: ModuleType, tmp_path: Path) -> None:
    images = pytest.importorskip("PIL.Image")
    import numpy as np

    (tmp_path / "in").mkdir()
    for number in range(4):
        images.fromarray(np.full((8, 8, 3), number * 10, np.uint8)).save(tmp_path / "in" / f"{number}.png")
    table = data.read_images(str(tmp_path / "in"), size=(4, 4), mode="RGB", include_paths=True)
    means = table.map(lambda row: {"image": 255 - row["image"], "mean": float(row["image"].mean())})
    assert sorted(column(means, "mean")) == [0, 10, 20, 30]
    means.write_images(str(tmp_path / "out"), column="image")
    assert len(list((tmp_path / "out").iterdir())) == 4


@full
def test_a_sink_of_the_users_own_is_written(data: ModuleType, tmp_path: Path) -> None:
    from ray.data.block import BlockAccessor
    from ray.data.datasource import Datasink

    class Rows(Datasink):
        """Collects what is written."""

        def write(self, blocks: Any, ctx: Any) -> Any:
            return sum(BlockAccessor.for_block(block).num_rows() for block in blocks)

        def on_write_complete(self, write_result: Any) -> None:
            (tmp_path / "rows").write_text(str(sum(write_result.write_returns)))

    data.range(50).write_datasink(Rows())
    assert (tmp_path / "rows").read_text() == "50"


# -------------------------------------------------------------------------------------- transformations
def test_rows_and_batches_are_mapped_flattened_and_filtered(data: ModuleType) -> None:
    numbers = data.range(10)
    assert sorted(column(numbers.map(lambda row: {"id": row["id"] * 2}))) == list(range(0, 20, 2))
    assert sorted(column(numbers.flat_map(lambda row: [row] * (row["id"] % 3)))) == [1, 2, 2, 4, 5, 5, 7, 8, 8]
    assert sorted(column(numbers.filter(lambda row: row["id"] > 7))) == [8, 9]
    assert sorted(column(numbers.add_column("next", lambda batch: batch["id"] + 1), "next")) == list(range(1, 11))
    assert numbers.rename_columns({"id": "n"}).schema().names == ["n"]
    assert numbers.add_column("x", lambda batch: batch["id"]).drop_columns(["id"]).columns() == ["x"]
    assert numbers.select_columns(["id"]).columns() == ["id"]


@full
@pytest.mark.parametrize("batch_format", ["numpy", "pandas", "pyarrow"])
def test_batches_have_the_size_and_the_form_that_is_asked_for(data: ModuleType, batch_format: str) -> None:
    def measure(batch: Any) -> Any:
        size = len(batch["id"])
        return {"size": [size], "type": [type(batch).__name__]}

    names = {"numpy": "dict", "pandas": "DataFrame", "pyarrow": "Table"}
    found = data.range(100, override_num_blocks=1).map_batches(measure, batch_size=30, batch_format=batch_format).take_all()
    assert sorted(row["size"] for row in found) == [10, 30, 30, 30]
    assert {row["type"] for row in found} == {names[batch_format]}


def test_a_class_is_mapped_by_a_pool_of_actors(data: ModuleType) -> None:
    class Add:
        """Made once in each actor."""

        def __init__(self, amount: int) -> None:
            self.amount = amount

        def __call__(self, batch: dict[str, Any], more: int = 0) -> dict[str, Any]:
            return {"sum": batch["id"] + self.amount + more, "pid": [os.getpid()] * len(batch["id"])}

    found = data.range(40, override_num_blocks=8).map_batches(
        Add, fn_constructor_args=(100,), fn_kwargs={"more": 1000}, batch_size=5, concurrency=2
    )
    rows = found.take_all()
    assert sorted(row["sum"] for row in rows) == list(range(1100, 1140))
    assert 1 <= len({row["pid"] for row in rows} - {os.getpid()}) <= 2


@full
def test_a_coroutine_method_is_mapped_by_actors(data: ModuleType) -> None:
    class Wait:
        """Asynchronous."""

        async def __call__(self, batch: dict[str, Any]) -> Any:
            import asyncio

            await asyncio.sleep(0.01)
            yield {"id": batch["id"] + 1}

    assert sorted(column(data.range(20).map_batches(Wait, batch_size=2, concurrency=1))) == list(range(1, 21))


@full
def test_functions_and_classes_are_mapped_on_a_gpu(data: ModuleType) -> None:
    def where(batch: dict[str, Any]) -> dict[str, Any]:
        return {"gpu": [os.environ.get("CUDA_VISIBLE_DEVICES")] * len(batch["id"])}

    class Where:
        """On the GPU of its actor."""

        def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
            return where(batch)

    assert set(column(data.range(4, override_num_blocks=2).map_batches(where, num_gpus=1, batch_size=2), "gpu")) == {"0"}
    assert set(column(data.range(4, override_num_blocks=2).map_batches(Where, num_gpus=0.5, concurrency=2, batch_size=2), "gpu")) == {"0"}


@full
def test_generators_yield_batches(data: ModuleType) -> None:
    def halves(batch: dict[str, Any]) -> Any:
        middle = len(batch["id"]) // 2
        yield {"id": batch["id"][:middle]}
        yield {"id": batch["id"][middle:]}

    assert sorted(column(data.range(10).map_batches(halves))) == list(range(10))


@full
def test_options_of_ray_are_those_of_the_tasks(data: ModuleType) -> None:
    def name(batch: dict[str, Any]) -> dict[str, Any]:
        return {"set": [os.environ.get("OF_THE_TASK", "")] * len(batch["id"])}

    named = data.range(4).map_batches(name, runtime_env={"env_vars": {"OF_THE_TASK": "yes"}}, num_cpus=0.5, memory=1 << 20)
    assert set(column(named, "set")) == {"yes"}


@full
def test_expressions_compute_columns(data: ModuleType) -> None:
    from ray.data.expressions import col, lit

    table = data.range(10).with_column("twice", col("id") * lit(2)).filter(expr=col("twice") >= lit(16))
    assert sorted(column(table, "twice")) == [16, 18]


def test_tables_are_sorted_shuffled_and_divided_anew(data: ModuleType) -> None:
    numbers = data.range(200, override_num_blocks=5)
    assert column(numbers.sort("id", descending=True)) == list(range(199, -1, -1))
    mixed = column(numbers.random_shuffle(seed=3))
    assert mixed != list(range(200))
    assert sorted(mixed) == list(range(200))
    assert numbers.repartition(3).materialize().num_blocks() == 3
    assert sorted(column(numbers.randomize_block_order(seed=1))) == list(range(200))


@full
def test_sorting_by_several_keys(data: ModuleType) -> None:
    table = data.from_items([{"a": number % 3, "b": number} for number in range(9)])
    found = [(row["a"], row["b"]) for row in table.sort(["a", "b"], descending=[False, True]).take_all()]
    assert found == [(0, 6), (0, 3), (0, 0), (1, 7), (1, 4), (1, 1), (2, 8), (2, 5), (2, 2)]


def test_groups_are_aggregated_and_mapped(data: ModuleType) -> None:
    from ray.data.aggregate import Max, Mean, Quantile

    rest = data.range(30).map(lambda row: {"id": row["id"], "rest": row["id"] % 3})
    found = rest.groupby("rest").aggregate(Max("id"), Mean("id"), Quantile("id", q=0.5)).sort("rest").take_all()
    assert [(row["max(id)"], row["mean(id)"], row["quantile(id)"]) for row in found] == [
        (27, 13.5, 13.5),
        (28, 14.5, 14.5),
        (29, 15.5, 15.5),
    ]
    sums = rest.groupby("rest").map_groups(lambda group: {"rest": group["rest"][:1], "sum": [group["id"].sum()]})
    assert sorted((row["rest"], row["sum"]) for row in sums.take_all()) == [(0, 135), (1, 145), (2, 155)]
    assert rest.unique("rest") in ([0, 1, 2], {0, 1, 2}) or sorted(rest.unique("rest")) == [0, 1, 2]


@full
@pytest.mark.parametrize("strategy", ["HASH_SHUFFLE", "SORT_SHUFFLE_PULL_BASED", "SORT_SHUFFLE_PUSH_BASED", "SHUFFLE_V2"])
def test_every_strategy_of_shuffling_groups(data: ModuleType, strategy: str) -> None:
    from ray.data.context import ShuffleStrategy

    context = data.DataContext.get_current()
    before = context.shuffle_strategy
    context.shuffle_strategy = ShuffleStrategy[strategy]
    try:
        rest = data.range(300, override_num_blocks=6).map(lambda row: {"id": row["id"], "rest": row["id"] % 7})
        found = rest.groupby("rest").sum("id").take_all()
        assert sorted(row["sum(id)"] for row in found) == sorted(sum(range(rest, 300, 7)) for rest in range(7))
        assert column(rest.sort("id")) == list(range(300))
        if not strategy.startswith("SORT"):
            assert Counter(column(rest.repartition(3, keys=["rest"]))) == Counter(range(300))
    finally:
        context.shuffle_strategy = before


@full
@pytest.mark.parametrize("join_type", ["inner", "left_outer", "right_outer", "full_outer", "left_semi", "left_anti"])
def test_tables_are_joined(data: ModuleType, join_type: str) -> None:
    pytest.importorskip("polars")
    left = data.from_items([{"key": key, "left": key * 10} for key in range(6)])
    right = data.from_items([{"key": key, "right": key * 100} for key in range(3, 9)])
    found = left.join(right, join_type=join_type, num_partitions=2, on=("key",)).take_all()
    keys = {
        "inner": range(3, 6),
        "left_outer": range(6),
        "right_outer": range(3, 9),
        "full_outer": range(9),
        "left_semi": range(3, 6),
        "left_anti": range(3),
    }
    assert len(found) == len(keys[join_type])


@full
def test_tables_are_zipped_united_limited_and_sampled(data: ModuleType) -> None:
    numbers = data.range(20, override_num_blocks=3)
    other = numbers.map(lambda row: {"square": row["id"] ** 2})
    assert all(row["square"] == row["id"] ** 2 for row in numbers.zip(other).take_all())
    assert Counter(column(numbers.union(numbers))) == Counter(list(range(20)) * 2)
    assert column(numbers.limit(4)) == [0, 1, 2, 3]
    assert numbers.random_sample(0.5, seed=1).count() < 20


# --------------------------------------------------------------------------------------------- consumers
@full
def test_tables_are_split(data: ModuleType) -> None:
    numbers = data.range(30, override_num_blocks=6)
    assert [part.count() for part in numbers.split(3)] == [10, 10, 10]
    assert [part.count() for part in numbers.split_at_indices([5, 12])] == [5, 7, 18]
    assert [part.count() for part in numbers.split_proportionately([0.2, 0.5])] == [6, 15, 9]
    train, test = numbers.train_test_split(test_size=0.3)
    assert (train.count(), test.count()) == (21, 9)


@full
def test_actors_share_a_stream(data: ModuleType) -> None:
    import ray

    @ray.remote
    class Reader:
        """Reads its part of each epoch."""

        def read(self, iterator: Any) -> list[list[int]]:
            return [[int(number) for batch in iterator.iter_batches(batch_size=7) for number in batch["id"]] for _ in range(2)]

    readers = [Reader.remote() for _ in range(2)]
    parts = data.range(60, override_num_blocks=6).streaming_split(2, equal=True)
    first, second = ray.get([reader.read.remote(part) for reader, part in zip(readers, parts, strict=True)])
    for mine, others in zip(first, second, strict=True):
        assert len(mine) == len(others) == 30
        assert sorted(mine + others) == list(range(60))


@pytest.mark.parametrize("prefetch_batches", [pytest.param(1, marks=full), 2])
def test_batches_are_iterated(data: ModuleType, prefetch_batches: int) -> None:
    numbers = data.range(100, override_num_blocks=4)
    batches = numbers.iter_batches(batch_size=32, prefetch_batches=prefetch_batches, batch_format="pandas")
    assert sum(len(batch) for batch in batches) == 100
    assert [len(batch["id"]) for batch in numbers.iter_batches(batch_size=32, drop_last=True)] == [32, 32, 32]
    mixed = [
        int(number)
        for batch in numbers.iter_batches(batch_size=10, local_shuffle_buffer_size=50, local_shuffle_seed=1)
        for number in batch["id"]
    ]
    assert mixed != list(range(100))
    assert sorted(mixed) == list(range(100))
    assert sorted(row["id"] for row in numbers.iter_rows()) == list(range(100))


@full
def test_tensors_of_torch_are_iterated(data: ModuleType) -> None:
    torch = pytest.importorskip("torch")
    table = data.range(10).add_column("half", lambda batch: batch["id"] / 2)
    batches = list(table.iter_torch_batches(batch_size=4, dtypes={"id": torch.int32, "half": torch.float32}))
    assert [batch["id"].dtype for batch in batches] == [torch.int32] * 3
    assert sum(float(batch["half"].sum()) for batch in batches) == 22.5
    sums = table.iterator().iter_torch_batches(batch_size=5, collate_fn=lambda batch: torch.as_tensor(batch["id"].sum()))
    assert sorted(map(int, sums)) == [10, 35]


@full
def test_references_to_blocks_are_given(data: ModuleType) -> None:
    import ray

    numbers = data.range(20, override_num_blocks=2)
    assert sum(len(each) for each in ray.get(numbers.to_pandas_refs())) == 20
    assert sum(each.num_rows for each in ray.get(numbers.to_arrow_refs())) == 20
    assert sum(len(each["id"]) for each in ray.get(numbers.to_numpy_refs())) == 20
    assert sum(bundle.num_rows() for bundle in numbers.iter_internal_ref_bundles()) == 20


def test_aggregates_of_a_whole_table(data: ModuleType) -> None:
    numbers = data.range(11)
    assert (numbers.count(), numbers.sum("id"), numbers.min("id"), numbers.max("id"), numbers.mean("id")) == (11, 55, 0, 10, 5)
    assert round(numbers.std("id"), 6) == 3.316625
    assert numbers.size_bytes() == 88


@full
def test_statistics_name_each_operator_and_its_tasks(data: ModuleType) -> None:
    numbers = data.range(100, override_num_blocks=4).map_batches(lambda batch: batch, batch_size=None).materialize()
    text = numbers.stats()
    assert "ReadRange" in text
    assert "4 tasks executed, 4 blocks produced" in text
    for line in ("Remote wall time", "Remote cpu time", "Output num rows per block", "Dataset throughput"):
        assert line in text, text


@full
def test_a_dataset_is_pickled_and_used_in_a_task(data: ModuleType) -> None:
    import ray

    @ray.remote
    def total(table: Any) -> int:
        return int(table.sum("id"))

    numbers = data.range(100)
    assert ray.get(total.remote(numbers)) == 4950
    assert ray.get(total.remote(numbers.materialize())) == 4950
    assert data.Dataset.deserialize_lineage(numbers.serialize_lineage()).sum("id") == 4950


@full
def test_preprocessors_are_fitted(data: ModuleType) -> None:
    from ray.data.preprocessors import Chain, LabelEncoder, StandardScaler

    table = data.from_items([{"x": float(number), "y": "ab"[number % 2]} for number in range(10)])
    found = Chain(StandardScaler(columns=["x"]), LabelEncoder(label_column="y")).fit_transform(table).to_pandas()
    assert abs(found["x"].mean()) < 1e-9
    assert sorted(set(found["y"])) == [0, 1]


# ------------------------------------------------------------------------------------------------ errors
@pytest.mark.parametrize("stateful", [False, pytest.param(True, marks=full)])
def test_an_error_of_the_users_function_has_its_type_and_text(data: ModuleType, stateful: bool) -> None:
    import ray

    def fail(batch: dict[str, Any]) -> dict[str, Any]:
        raise ValueError("this batch is bad")

    class Fail:
        """Fails on each batch."""

        def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
            return fail(batch)

    table = data.range(4).map_batches(Fail, concurrency=1) if stateful else data.range(4).map_batches(fail)
    with pytest.raises(ray.exceptions.UserCodeException, match="ValueError: this batch is bad") as caught:
        table.take_all()
    assert isinstance(caught.value, ray.exceptions.RayTaskError)
    assert "in fail" in str(caught.value)
    assert "ray/data/_internal" not in str(caught.value)


@full
def test_an_error_of_a_constructor_is_told(data: ModuleType) -> None:
    import ray

    class Fail:
        """Fails when it is made."""

        def __init__(self) -> None:
            raise RuntimeError("no model here")

        def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
            return batch

    with pytest.raises(ray.exceptions.RayError, match="no model here"):
        data.range(4).map_batches(Fail, concurrency=1).take_all()


@full
def test_some_blocks_may_fail(data: ModuleType) -> None:
    def fail(row: dict[str, Any]) -> dict[str, Any]:
        if row["id"] == 3:
            raise ValueError("three")
        return row

    context = data.DataContext.get_current()
    context.max_errored_blocks = 1
    try:
        assert sorted(column(data.range(8, override_num_blocks=8).map(fail))) == [0, 1, 2, 4, 5, 6, 7]
    finally:
        context.max_errored_blocks = 0


@full
def test_a_worker_that_dies_is_replaced(data: ModuleType, tmp_path: Path) -> None:
    mark = tmp_path / "died"

    def die_once(row: dict[str, Any]) -> dict[str, Any]:
        if row["id"] == 5 and not mark.exists():
            mark.touch()
            os._exit(1)
        return row

    assert sorted(column(data.range(10, override_num_blocks=5).map(die_once))) == list(range(10))
    assert mark.exists()


@full
def test_an_actor_of_a_pool_that_dies_is_replaced(data: ModuleType, tmp_path: Path) -> None:
    mark = tmp_path / "died"

    class DieOnce:
        """Dies in one of its batches."""

        def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
            if 5 in batch["id"] and not mark.exists():
                mark.touch()
                os._exit(1)
            return batch

    assert sorted(column(data.range(10, override_num_blocks=5).map_batches(DieOnce, concurrency=2, batch_size=1))) == list(range(10))


@full
def test_a_missing_file_is_said_to_be_missing(data: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        data.read_csv(str(tmp_path / "nothing.csv")).take_all()


@full
def test_a_table_is_plain_text_too(data: ModuleType) -> None:
    table = data.range(3)
    assert "id: int64" in repr(table.map(lambda row: row).materialize()) or "int64" in repr(table.materialize())
    assert json.loads(json.dumps(column(table))) == [0, 1, 2]
