"""The programs of `mray.examples`, run small: each checks its own result, by ordinary calls and through a compiled graph."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys

import pytest

pytestmark = pytest.mark.only("mray")

PRELOAD = ["torch"] if importlib.util.find_spec("torch") else []


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


@pytest.mark.parametrize("stages", [2, 4])
def test_pipeline_parallel_inference_is_that_of_the_whole_model(ray_session, stages):
    pytest.importorskip("torch")
    assert_measured(example("pipeline_parallel").compare(executions=2, stages=stages))


def test_the_check_of_the_pipeline_notices_a_wrong_layer(ray_session):
    torch = pytest.importorskip("torch")
    pipeline = example("pipeline_parallel")
    micro_batch = torch.zeros(1, pipeline.TOKENS, pipeline.WIDTH)
    with torch.inference_mode():
        one, other = (pipeline.make_model(seed)(micro_batch) for seed in (0, 1))
    pipeline.check([one], [one])
    with pytest.raises(AssertionError):
        pipeline.check([other], [one])


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


@pytest.mark.parametrize(("number", "transport"), [(1, "auto"), (2, "nccl")])
def test_the_quickstart_of_gpus_runs_as_it_stands_on_two_and_with_one_line_changed_on_one(gpus, number, transport):
    gpus(number)
    assert example("gpu_quickstart").run() == (transport, (10,))


def test_gpu_examples_pretend_a_gpu_where_there_is_none(fresh, monkeypatch, capsys):
    monkeypatch.setattr(example("gpu_pipeline"), "platform", lambda: None)
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
    assert ("skipped, for want of torch: pipeline_parallel" in printed) != torch_is_installed
    assert ("stages on one GPU" in printed) != ("skipped, for want of a GPU: gpu_pipeline" in printed)
