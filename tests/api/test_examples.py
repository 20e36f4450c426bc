"""The programs of `mray.examples`, run small: each checks its own result, by ordinary calls and through a compiled graph."""

from __future__ import annotations

import importlib
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

pytestmark = pytest.mark.only("mray")


def example(name: str):
    return importlib.import_module(f"mray.examples.{name}")


def assert_measured(comparison) -> None:
    for latency in (comparison.calls, comparison.graph):
        assert 0 < latency.median <= latency.p99


def test_hello_world_runs(ray_session):
    assert_measured(example("hello_world").compare(executions=5))


def test_the_image_pipeline_makes_the_picture_of_the_edges(ray_session, tmp_path):
    picture = tmp_path / "edges.ppm"
    assert_measured(example("image_pipeline").compare(executions=2, result=picture))
    assert picture.read_bytes().startswith(b"P6\n")


@pytest.fixture
def gpus(init, monkeypatch):
    """Starts a session on a machine with so many pretended GPUs."""
    platform = importlib.import_module("mray._device.platform")

    def start(number: int) -> None:
        monkeypatch.setenv("MRAY_NULL_DEVICES", f"{number},scope=examples{os.getpid()}")
        platform.forget_platform()
        init(num_cpus=2, num_gpus=number)

    yield start
    monkeypatch.undo()
    platform.forget_platform()


def test_the_gpu_pipeline_keeps_its_tensors_on_the_gpu(gpus, capsys):
    gpus(1)
    assert_measured(example("gpu_pipeline").compare(executions=2, megabytes=0.1))
    assert "0 tensors passed through host memory" in capsys.readouterr().out


def test_the_gpu_pipeline_pretends_a_gpu_where_there_is_none(fresh, monkeypatch, capsys):
    monkeypatch.setattr(example("gpu_pipeline"), "platform", lambda: None)
    monkeypatch.setattr(sys, "argv", ["gpu_pipeline", "2", "0.1"])
    example("gpu_pipeline").main()
    printed = capsys.readouterr().out
    assert "no GPU here: pretending one" in printed
    assert "0 tensors passed through host memory" in printed


def test_all_examples_run_together_and_say_what_they_leave_out(fresh, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["mray.examples", "--executions", "2"])
    importlib.import_module("mray.examples.__main__").main()
    printed = capsys.readouterr().out
    assert "hello world, one actor" in printed
    assert ("stages on one GPU" in printed) != ("skipped, for want of a GPU: gpu_pipeline" in printed)


# ------------------------------------------------------------------------------------------- inference
@pytest.mark.parametrize("stages", [1, 2])
def test_an_executor_sends_a_step_to_every_rank_and_brings_the_output_of_the_first(ray_session, stages, eventually):
    executor = example("inference").InferenceExecutor(lambda stage, rank: Steps(stage, rank), 2, stages, num_cpus=0)
    assert [each.get() for each in [executor.step(number) for number in range(3)]] == [
        [(number, stage, 0) for stage in range(stages)] for number in range(3)
    ]
    # A step's output comes when rank 0 has it.
    eventually(lambda: executor.call("count") == [3] * (2 * stages), what="each rank has had each step")
    executor.shutdown()


def test_an_error_of_rank_0_is_the_steps_and_that_of_another_rank_a_later_steps(ray_session, eventually):
    executor = example("inference").InferenceExecutor(lambda stage, rank: Steps(stage, rank), 2, num_cpus=0, in_flight=2)
    with pytest.raises(ZeroDivisionError):
        executor.step("rank 0 fails").get()
    assert executor.step("rank 1 fails").get() == [("rank 1 fails", 0, 0)]
    eventually(lambda: executor.call("count")[1] == 2, what="rank 1 has failed")
    with pytest.raises(ZeroDivisionError):
        for number in range(3):
            assert executor.step(number).get() == [(number, 0, 0)]
    assert executor.step(1).get() == [(1, 0, 0)]
    executor.shutdown()


def test_rank_0_answers_before_the_other_ranks_have_finished(ray_session, tmp_path):
    executor = example("inference").InferenceExecutor(lambda stage, rank: Steps(stage, rank), 2, num_cpus=0)
    gate = tmp_path / "gate"
    assert executor.step(gate).get() == [(gate, 0, 0)]
    gate.touch()
    executor.shutdown()


def test_the_death_of_a_rank_ends_every_wait_of_its_executor(ray_session):
    executor = example("inference").InferenceExecutor(lambda stage, rank: Steps(stage, rank), 2, num_cpus=0)
    with pytest.raises(ray_session.exceptions.ActorDiedError, match="exit code 7|status 7"):
        for _ in range(1000):
            executor.step("rank 1 dies").get()
    executor.shutdown()


class Steps:
    """A worker that notes down the steps that it was given."""

    def __init__(self, stage, rank):
        self.stage, self.rank, self.seen = stage, rank, 0

    def step(self, request, before):
        self.seen += 1
        if request == f"rank {self.rank} fails":
            raise ZeroDivisionError
        if self.rank == 1 and isinstance(request, Path):
            while not request.exists():
                time.sleep(0.001)
        if self.rank == 1 and request == "rank 1 dies":
            os._exit(7)
        return [*(before or ()), (request, self.stage, self.rank)]

    def count(self):
        return self.seen


def test_inference_by_calls_and_by_a_graph(ray_session):
    assert_measured(example("inference").compare(steps=3))


def test_the_executor_for_vllm_asks_all_workers_and_brings_the_answer_of_one(init, tmp_path, monkeypatch):
    """With a stand-in for the few names of vLLM that it uses, which workers find, too."""
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").write_text(STAND_IN_FOR_VLLM)
    monkeypatch.syspath_prepend(tmp_path)
    init(num_cpus=2)
    config = SimpleNamespace(
        parallel_config=SimpleNamespace(world_size=4, tensor_parallel_size=2, pipeline_parallel_size=2),
        scheduler_config=SimpleNamespace(async_scheduling=False),
    )
    try:
        executor = example("vllm_executor").MrayExecutor(config)
        assert executor.collective_rpc("where") == [
            (rank, rank % 2 == 0, ["init_worker", "init_device", "load_model"]) for rank in range(4)
        ]
        assert executor.execute_model("step") == ("step", 2)
        later = [executor.execute_model(number, non_block=True) for number in range(2)]
        assert [each.result() for each in later] == [(0, 2), (1, 2)]
        assert executor.collective_rpc(lambda worker, add: worker.rank + add, args=(10,)) == [10, 11, 12, 13]
        executor.check_health()
        with pytest.raises(KeyError):
            executor.collective_rpc("fails")
        executor.shutdown()
        executor.shutdown()
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "vllm" or name == "mray.examples.vllm_executor"]:
            del sys.modules[name]


STAND_IN_FOR_VLLM = """
import pickle, sys
from types import ModuleType, SimpleNamespace


class Executor:
    def __init__(self, vllm_config):
        self.vllm_config, self.parallel_config = vllm_config, vllm_config.parallel_config
        self.scheduler_config = vllm_config.scheduler_config
        self._init_executor()


class WorkerWrapperBase:
    def __init__(self, rpc_rank):
        self.rank, self.asked = rpc_rank, []

    def init_worker(self, all_kwargs):
        self.asked.append("init_worker")
        self.kwargs = all_kwargs[self.rank]

    def init_device(self):
        self.asked.append("init_device")

    def load_model(self):
        self.asked.append("load_model")

    def where(self):
        return self.kwargs["rank"], self.kwargs["is_driver_worker"], self.asked

    def execute_model(self, scheduled):
        return scheduled, self.rank

    def check_health(self):
        pass

    def fails(self):
        raise KeyError(self.rank)


def run_method(worker, method, args, kwargs):
    if isinstance(method, bytes):
        return pickle.loads(method)(worker, *args, **kwargs)
    return getattr(worker, method)(*args, **kwargs)


parts = {
    "platforms": {"current_platform": SimpleNamespace(is_cuda_alike=lambda: False)},
    "utils.network_utils": {"get_distributed_init_method": "tcp://{}:{}".format, "get_open_port": lambda: 1},
    "v1.executor.abstract": {"Executor": Executor},
    "v1.serial_utils": {"run_method": run_method},
    "v1.worker.worker_base": {"WorkerWrapperBase": WorkerWrapperBase},
}
for path, names in parts.items():
    words = ["vllm", *path.split(".")]
    for end in range(2, len(words) + 1):
        sys.modules.setdefault(".".join(words[:end]), ModuleType(".".join(words[:end]))).__path__ = []
    vars(sys.modules[".".join(words)]).update(names)
"""


def test_the_image_pipeline_refuses_what_is_no_picture(tmp_path):
    text = tmp_path / "picture.ppm"
    text.write_bytes(b"P3 1 1 255 0 0 0")
    with pytest.raises(ValueError, match=f"{text} is not a binary PPM picture"):
        example("image_pipeline").load_batch(text)
