"""`tools/gpu --first` on pretended devices: what it finds, what it leaves when a step hangs or the run is cut off."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.checkout import python_path
from tests.conformance.device_kinds import Null, Peer

ROOT = Path(__file__).resolve().parents[2]


def command(folder: Path, *words: str) -> list[str]:
    return [sys.executable, str(ROOT / "tools/gpu"), "--first", "--pretend", "--out", str(folder), *words]


def steps_of(folder: Path) -> dict[str, Any]:
    return {step["step"]: step for step in json.loads((folder / "first.json").read_text())["steps"]}


def test_probes_answer_as_the_design_needs_it(tmp_path: Path) -> None:
    done = subprocess.run(command(tmp_path), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    steps = steps_of(tmp_path)
    answered = [name for name, step in steps.items() if step["status"] == "passed"]
    assert answered == ["graph", "edges", "forsake", "dead_handles", "dead_memory", "order", "costs", "peers"]
    assert list(steps)[:7] == ["warm_up", "hello", "graph", "turns", "edges", "mps", "words"]
    assert {step["status"] for step in steps.values()} == {"passed", "needs CUDA"}
    said = {name: step["output"] for name, step in steps.items()}
    assert "of 5: {5} of int32, 100 elements, on the device: True" in said["graph"]
    counted = [line.split(": ")[1] for line in said["edges"].splitlines() if line.startswith("     of 25 messages")]
    counts = [tuple(map(int, re.findall(r"device_[a-z]+ (\d+)", each))) for each in counted]
    copied = (25, 0, 0)
    assert len(counts) == 6 and counts[:2] == counts[3:5] == [copied, copied]
    # Where a reader releases an output late, the next one is made in memory of its own, and copied: how many, depends on the load.
    assert all(sum(each) == 25 and each[1] >= 5 and not each[2] for each in counts[2::3]), counted
    assert "peer access: ok: 2 of 2 directions" in said["peers"]
    assert "waits while the writer lives: True" in said["forsake"] and "goes on by death alone: True" in said["forsake"]
    assert "memory of the dead: RuntimeError" in said["dead_handles"] and "timeline of the dead: NotOpenedError" in said["dead_handles"]
    assert "contents: {7.0}" in said["dead_memory"] and "MiB that closing gave back: 16" in said["dead_memory"]
    assert said["order"].count("True") == 3
    text = (tmp_path / "first.txt").read_text()
    assert all(output.strip() in text for output in said.values())
    assert "all passed" in done.stdout


def test_changes_of_context_are_counted_in_a_hand_over_and_in_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    floor = importlib.import_module("gpu_turns").floor
    said = floor((10e-6, 170e-6), handed_over=172e-6, followed=340e-6)
    assert "change of context takes 160 us; a hand-over, 172 us, is a launch and 1.0 changes" in said
    assert said.endswith("340 us, is two launches and 2.0")
    assert floor((10e-6, 11e-6), handed_over=12e-6, followed=25e-6).startswith("no change of context (1.0 us): a hand-over takes 12 us")


def test_a_step_that_hangs_costs_its_limit_and_is_named(tmp_path: Path) -> None:
    words = "--step", "order", "--step", "costs", "--limit", "0.01"
    done = subprocess.run(command(tmp_path, *words), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert [(name, step["status"]) for name, step in steps_of(tmp_path).items()] == [
        (name, "hung for 0.01 s") for name in ("order", "costs")
    ]
    assert "not passed: order, costs" in done.stdout


def test_a_run_that_is_cut_off_leaves_what_it_has_found(tmp_path: Path) -> None:
    words = "--step", "dead_memory", "--step", "order"
    with subprocess.Popen(
        [sys.executable, str(ROOT / "tools/gpu_first.py"), *command(tmp_path, *words)[3:]], stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        while not run.stdout.readline().startswith("   MiB that closing gave back"):
            pass
        # The files are written after the line is printed.
        while not (tmp_path / "first.txt").exists():
            assert run.poll() is None
        run.kill()
    assert list(steps_of(tmp_path)) == ["dead_memory"]


def test_a_step_that_is_not_known_is_an_error_that_names_those_that_are(tmp_path: Path) -> None:
    done = subprocess.run(command(tmp_path, "--step", "nothing"), capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no step is called nothing; there are warm_up, hello, graph" in done.stderr


def test_a_run_that_has_no_time_left_names_the_steps_that_it_has_not_done(tmp_path: Path) -> None:
    words = "--from", "dead_memory", "--budget"
    done = subprocess.run(command(tmp_path, *words, "4.5"), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert (
        lines[-2].startswith("left undone, for want of time: ")
        and lines[-1] == f"go on with: --from {lines[-2].split(': ')[1].split(',')[0]}"
    )
    done = subprocess.run(command(tmp_path, *words, "0"), capture_output=True, text=True, check=False)
    assert "left undone, for want of time: dead_memory, order, costs" in done.stdout
    assert done.stdout.endswith("go on with: --from dead_memory\n")


def test_a_failure_is_told_though_a_later_test_ends_the_process(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("from tests.gpu.conftest import pytest_runtest_makereport\n")
    tests = "import os\n\ndef test_one():\n    assert 6 * 7 == 43\n\ndef test_two():\n    os._exit(3)\n"
    (tmp_path / "test_both.py").write_text(tests)
    words = [sys.executable, "-m", "pytest", str(tmp_path), "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": python_path()}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "test_both.py::test_one failed (call):" in done.stdout and "assert (6 * 7) == 43" in done.stdout


def test_what_a_run_has_installed_reaches_the_processes_that_its_probes_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert python_path() == f"{ROOT}:{tmp_path}"
    peer = Peer(Null())
    try:
        assert peer("memory", 0)  # it has begun, so its variables are those that it was given
        assert f"PYTHONPATH={python_path()}".encode() in Path(f"/proc/{peer.pid}/environ").read_bytes().split(b"\0")
    finally:
        peer.close()
