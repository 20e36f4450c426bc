"""Everything at once while processes are killed: see `tools/torture.py`, which runs for hours by hand. A fresh seed for each run."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.full import full

pytestmark = pytest.mark.timeout(900)
PROGRAM = Path(__file__).resolve().parents[2] / "tools" / "torture.py"

#: Arguments of the program. Sessions are the ones whose driver or node is killed, too.
ROWS = {
    "fixed": ["--seconds", "9", "--seed", "9"],
    "fresh": ["--seconds", "6", "--seed", str(random.SystemRandom().randrange(1 << 30))],
    "sessions": ["--seconds", "6", "--seed", "9", "--sessions"],
}


@pytest.mark.parametrize("row", [pytest.param("fixed", marks=full), "fresh", "sessions"])
def test_no_answer_is_wrong_nothing_hangs_and_nothing_is_left(row):
    done = subprocess.run([sys.executable, str(PROGRAM), *ROWS[row]], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    print(done.stdout[-4000:])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no wrong answer, no hang, nothing left" in done.stdout


def test_a_wrong_answer_is_found_and_reported_with_seed_and_events(tmp_path):
    """The torture itself: a value that is not what it must be ends it."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tmp_path / "mray").symlink_to(PROGRAM.parents[1] / "mray")
    (tools / "torture.py").write_text(PROGRAM.read_text())
    work = PROGRAM.with_name("torture_work.py").read_text()
    assert work.count("    return make(number)\n") == 1
    (tools / "torture_work.py").write_text(work.replace("    return make(number)\n", "    return make(number + (number % 9 == 0))\n"))
    done = subprocess.run(
        [sys.executable, str(tools / "torture.py"), "--seconds", "60", "--seed", "4", "--every", "1000", "--only", "tasks"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "VIOLATION task " in done.stdout
    assert "seed 4; the last events:" in done.stdout
    assert "begins tasks" in done.stdout
