"""The programs of `mray.examples`, run small: each checks its own result, by ordinary calls and through a compiled graph."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import sys

import pytest

pytestmark = pytest.mark.only("mray")


@pytest.fixture
def session(init):
    """A session whose workers start with torch imported, if it is installed."""
    return init(num_cpus=4, preload=["torch"] if importlib.util.find_spec("torch") else [])


def example(name: str):
    return importlib.import_module(f"mray.examples.{name}")


def assert_measured(comparison) -> None:
    for latency in (comparison.calls, comparison.graph):
        assert 0 < latency.median <= latency.p99


def test_hello_world_runs(session):
    assert_measured(example("hello_world").compare(executions=5))


def test_the_image_pipeline_makes_the_picture_of_the_edges(session, tmp_path):
    picture = tmp_path / "edges.ppm"
    assert_measured(example("image_pipeline").compare(executions=2, result=picture))
    assert picture.read_bytes().startswith(b"P6\n")


@pytest.mark.parametrize("clients", [1, 20])
def test_the_server_answers_every_client(session, clients):
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
def test_pipeline_parallel_inference_is_that_of_the_whole_model(session, stages):
    pytest.importorskip("torch")
    assert_measured(example("pipeline_parallel").compare(executions=2, stages=stages))


@pytest.mark.parametrize("shards", [2, 3])
def test_tensor_parallel_products_are_those_of_the_whole_weights(session, shards):
    pytest.importorskip("torch")
    assert_measured(example("tensor_parallel").compare(executions=2, shards=shards))


@pytest.mark.parametrize("actors", [2, 3])
def test_data_parallel_training_is_training_on_the_whole_batch(session, actors):
    pytest.importorskip("torch")
    assert_measured(example("data_parallel").compare(steps=2, actors=actors))


def test_the_check_of_the_pipeline_notices_a_wrong_layer(session):
    torch = pytest.importorskip("torch")
    pipeline = example("pipeline_parallel")
    micro_batch = torch.zeros(1, pipeline.TOKENS, pipeline.WIDTH)
    with torch.inference_mode():
        one, other = (pipeline.make_model(seed)(micro_batch) for seed in (0, 1))
    pipeline.check([one], [one])
    with pytest.raises(AssertionError):
        pipeline.check([other], [one])


def test_the_check_of_the_training_notices_unequal_replicas(session):
    pytest.importorskip("torch")
    import mray

    training = example("data_parallel")
    replicas = [mray.remote(training.Trainer).remote() for _ in range(2)]

    def train_apart(parts):
        gradients = mray.get([replica.gradients.remote(part) for replica, part in zip(replicas, parts, strict=True)])
        return mray.get([replica.step.remote(*own) for replica, own in zip(replicas, gradients, strict=True)])

    with pytest.raises(AssertionError):
        training.check(train_apart, replicas)


@pytest.mark.parametrize("torch_is_installed", [True, False])
def test_all_examples_run_together_and_say_what_they_leave_out(fresh, torch_is_installed, monkeypatch, capsys):
    if torch_is_installed:
        pytest.importorskip("torch")
    else:
        monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    monkeypatch.setattr(sys, "argv", ["mray.examples", "--executions", "2"])
    program = importlib.import_module("mray.examples.__main__")
    program.main()
    printed = capsys.readouterr().out
    assert "hello world, one actor" in printed
    assert ("tensor parallel, 2 actors" in printed) == torch_is_installed
    assert ("skipped, for want of torch: pipeline_parallel, tensor_parallel, data_parallel" in printed) != torch_is_installed
