"""The programs of `mray.examples`, run small: each checks its own result, by ordinary calls and through a compiled graph."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
import sys

import pytest

pytestmark = pytest.mark.only("mray")

#: An optimizer imports the second as it takes its first step, which is most of what an example's trainers do.
PRELOAD = ["torch", "torch._dynamo"] if importlib.util.find_spec("torch") else []


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


@pytest.mark.processes("memory of one process is not shared")
def test_batches_that_are_made_in_shared_memory_are_not_copied(ray_session):
    assert_measured(example("shared_batches").compare(executions=5))


@pytest.mark.parametrize("clients", [1, 20])
def test_the_server_answers_every_client(ray_session, clients):
    assert_measured(example("asyncio_server").compare(requests=100, clients=clients))


def test_a_request_that_fails_does_not_disturb_the_others():
    server = example("asyncio_server")
    texts = [["good good", "", "bad"], ["", "great"]]

    async def score(text):
        if not text.strip():
            raise ValueError("a text without words has no score")
        return int(server.expect(text))

    answers, _latency = asyncio.run(server.converse(score, texts))
    assert answers == [["4", "error: a text without words has no score", "-2"], ["error: a text without words has no score", "3"]]


@pytest.mark.parametrize("stages", [2, 4])
def test_pipeline_parallel_inference_is_that_of_the_whole_model(ray_session, stages):
    pytest.importorskip("torch")
    assert_measured(example("pipeline_parallel").compare(executions=2, stages=stages))


@pytest.mark.parametrize("shards", [2, 3])
def test_tensor_parallel_products_are_those_of_the_whole_weights(ray_session, shards):
    pytest.importorskip("torch")
    assert_measured(example("tensor_parallel").compare(executions=2, shards=shards))


@pytest.mark.parametrize("actors", [2, 3])
def test_data_parallel_training_is_training_on_the_whole_batch(ray_session, actors):
    pytest.importorskip("torch")
    assert_measured(example("data_parallel").compare(steps=2, actors=actors))


def test_the_check_of_the_pipeline_notices_a_wrong_layer(ray_session):
    torch = pytest.importorskip("torch")
    pipeline = example("pipeline_parallel")
    micro_batch = torch.zeros(1, pipeline.TOKENS, pipeline.WIDTH)
    with torch.inference_mode():
        one, other = (pipeline.make_model(seed)(micro_batch) for seed in (0, 1))
    pipeline.check([one], [one])
    with pytest.raises(AssertionError):
        pipeline.check([other], [one])


def test_the_check_of_the_training_notices_unequal_replicas(ray_session):
    pytest.importorskip("torch")
    import mray

    training = example("data_parallel")
    replicas = [mray.remote(training.Trainer).remote() for _ in range(2)]

    def train_apart(parts):
        gradients = mray.get([replica.gradients.remote(part) for replica, part in zip(replicas, parts, strict=True)])
        return mray.get([replica.step.remote(*own) for replica, own in zip(replicas, gradients, strict=True)])

    with pytest.raises(AssertionError):
        training.check(train_apart, replicas)


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


def test_the_inputs_of_a_replayed_cuda_graph_come_at_a_few_addresses(gpus, capsys):
    gpus(1)
    assert_measured(example("gpu_replay").compare(executions=10))
    captured, replays = (int(word) for word in capsys.readouterr().out.split() if word.isdigit())
    assert 1 <= captured <= example("gpu_replay").IN_FLIGHT + 1
    assert captured + replays == 14 * example("gpu_replay").IN_FLIGHT


@pytest.mark.parametrize(("number", "transport"), [(1, "auto"), (2, "nccl")])
def test_the_quickstart_of_gpus_runs_as_it_stands_on_two_and_with_one_line_changed_on_one(gpus, number, transport):
    gpus(number)
    assert example("gpu_quickstart").run() == (transport, (10,))


def test_gpu_examples_pretend_a_gpu_where_there_is_none(fresh, monkeypatch, capsys):
    monkeypatch.setattr(example("gpu_arrays"), "platform", lambda: None)
    monkeypatch.setattr(sys, "argv", ["gpu_quickstart"])
    example("gpu_quickstart").main()
    printed = capsys.readouterr().out
    assert "no GPU here: pretending one" in printed
    assert "transport='auto': the receiver got a tensor of shape (10,)" in printed


@pytest.mark.parametrize("torch_is_installed", [True, False])
def test_all_examples_run_together_and_say_what_they_leave_out(fresh, torch_is_installed, monkeypatch, capsys):
    if torch_is_installed:
        pytest.importorskip("torch")
    else:
        monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    monkeypatch.setattr(sys, "argv", ["mray.examples", "--executions", "2"])
    monkeypatch.setenv("MRAY_PRELOAD", ",".join(PRELOAD if torch_is_installed else []))
    program = importlib.import_module("mray.examples.__main__")
    program.main()
    printed = capsys.readouterr().out
    assert "hello world, one actor" in printed
    assert ("tensor parallel, 2 actors" in printed) == torch_is_installed
    assert ("skipped, for want of torch: pipeline_parallel, tensor_parallel, data_parallel" in printed) != torch_is_installed
    assert ("a CUDA graph, replayed" in printed) != ("skipped, for want of a GPU: gpu_pipeline, gpu_replay" in printed)
