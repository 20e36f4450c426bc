"""The measurements of GPU edges run on this machine's GPU, as small as can be."""

from __future__ import annotations

import pytest

from tests.gpu.bench_rows import ROWS, Run, run_bench


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_bench(tmp_path_factory.mktemp("bench"), {})


def test_the_program_says_what_it_measured_on(run):
    header = run.figures["header"]
    assert header["platform"] == "cuda", run.said
    assert header["driver"][0].isdigit()
    assert header["gpus"] >= 1


@pytest.mark.parametrize("row", ROWS)
def test_every_row_is_measured(run, row):
    assert isinstance(run.figures[row], dict), run.figures[row]
