"""Programs written after the patterns of post-training frameworks and of inference engines' executors, as ``mray run`` runs them, with four
pretended GPUs; `tools/frameworks` runs them on Ray as well.

Each asserts what it finds and prints "done". The names that it imports of Ray's inside are those that its framework imports.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.full import FULL

PROGRAMS = sorted((Path(__file__).parent / "programs").glob("pattern_*.py"))
#: In every run: between them they have all that the others use.
ALWAYS = {"pattern_nemo_rl", "pattern_roll", "pattern_verl", "pattern_vllm", "pattern_vllm_data_parallel"}


@pytest.mark.parametrize("program", [each for each in PROGRAMS if FULL or each.stem in ALWAYS], ids=lambda program: str(program.stem))
def test_the_pattern_of_a_framework_works(program: Path) -> None:
    command = [sys.executable, "-W", "error", "-m", "mray", "run", str(program)]
    env = {**os.environ, "MRAY_NULL_DEVICES": "4"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100, env=env)
    assert done.returncode == 0, done.stderr
    assert "done" in done.stdout.splitlines()
