"""`bench/bench_gpu.py` on a pretended GPU: every row runs, and what does not depend on time meets its target."""

from __future__ import annotations

import os

import pytest

from tests.gpu.bench_rows import ROWS, Run, run_bench

pytestmark = pytest.mark.only("mray")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    pytest.importorskip("torch")
    return run_bench(tmp_path_factory.mktemp("bench"), {"MRAY_NULL_DEVICES": f"1,scope=bench{os.getpid()}"})


def test_whatever_is_not_about_time_meets_its_target(run):
    assert run.figures["header"]["platform"] == "null", run.said
    assert not [line for line in run.said.splitlines() if "FAILED" in line or "MISSED" in line], run.said
    assert run.status == 0, run.said


@pytest.mark.parametrize("row", ROWS)
def test_every_row_is_measured_on_a_pretended_gpu(run, row):
    figures = run.figures[row]
    assert isinstance(figures, dict), figures
    assert ("skipped" in figures) == (row in ("queues", "mps")), figures  # torch's own, of CUDA; and the driver's


def test_executions_return_while_the_stream_of_the_producer_is_held(run):
    figures = run.figures["held"]
    assert figures["executions"] == figures["returned"] > 0, figures
    assert (figures["reached"], figures["in_time"], figures["right"]) == (0, True, True)


@pytest.mark.parametrize(("way", "name"), [("ours", "device_copied"), ("pinned", "device_copied"), ("host", "")])
def test_tensors_are_copied_as_often_as_their_way_says(run, way, name):
    for row in run.figures["copies"]["rows"]:
        edge = row[way]
        expected = dict.fromkeys(("device_copied", "device_handed", "device_refused"), 0)
        if name:
            expected[name] = edge["messages"]
        assert edge["counts"] == expected


def test_without_a_gpu_the_program_says_so(tmp_path):
    run = run_bench(tmp_path, {"MRAY_NULL_DEVICES": "0", "CUDA_VISIBLE_DEVICES": ""}, "--only", "waits")
    assert run.status == 3
    assert not run.figures
    assert "MRAY_NULL_DEVICES=1 pretends one" in run.said


def test_a_row_that_is_not_there_is_refused_with_the_names_of_those_that_are(tmp_path):
    run = run_bench(tmp_path, {"MRAY_NULL_DEVICES": "1"}, "--only", "nothing")
    assert run.status == 2
    assert not run.figures
    assert all(row in run.said for row in ROWS)
