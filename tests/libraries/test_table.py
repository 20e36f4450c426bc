"""The demands of Ray's libraries on the core, held: `tools/libraries` prints them anew from the installed files.

After a move to another version of Ray: ``python tools/libraries > tests/libraries/table.txt``, and the change is what there is to look at.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray")

ROOT = Path(__file__).resolve().parents[2]
#: Files whose demands are not met, by the beginnings of their paths, and why nothing that users need comes to them.
UNMET = {
    "ray/_private/test_utils.py": "helpers of Ray's own tests; Tune has a module for its release tests that imports one",
    "ray/_private/utils.py": "checks environments for Ray's own calls; mray's calls check them themselves",
    "ray/autoscaler/": "starts and ends machines; a mock of Tune's for tests asks for it",
    "ray/serve/_private/deployment_node.py": "no module of Serve imports it",
}


@pytest.fixture(scope="module")
def printed() -> str:
    """Both tables: to read the files of Ray's libraries is what takes long."""
    command = [sys.executable, str(ROOT / "tools" / "libraries"), "--both"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=250, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_demands_of_the_libraries_are_those_that_mray_was_made_for(printed: str) -> None:
    table, _, _lacking = printed.partition("\n\n")
    assert table.splitlines() == Path(__file__).with_name("table.txt").read_text().splitlines()


def test_each_demand_that_is_not_met_has_a_reason(printed: str) -> None:
    _table, _, lacking = printed.partition("\n\n")
    places = [line.strip() for line in lacking.splitlines() if line.startswith(" ")]
    reasons = {next((start for start in UNMET if place.startswith(start)), place) for place in places}
    assert reasons == set(UNMET)
