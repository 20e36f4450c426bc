"""Programs that were played on real Ray, whose outcomes mray must have too, but for what is meant (`tests.differential.known`).

Each run plays those of a kind that between them have each kind of step with each error that it ends in; with MRAY_TEST_FULL=1 all.

``tools/differential --record`` writes them; it also looks for programs on which the engines differ.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.differential.engines import Engine
from tests.differential.known import differences
from tests.full import covering

FILES = sorted((Path(__file__).parent / "recorded").glob("*.json"))


@pytest.fixture(scope="module")
def player(shared_session: Any) -> Iterator[Engine]:
    """One session for all programs, in a process of its own."""
    with Engine("mray") as engine:
        engine.start()
        shared_session.running = True
        try:
            yield engine
        finally:
            engine.stop()
            shared_session.running = False


def does(program: dict[str, Any]) -> Iterator[Hashable]:
    """The steps of a program, and the end of each, a value or an error."""
    for step, outcome in zip(program["steps"], program["outcomes"], strict=True):
        of_what = [step[name] for name in ("f", "c", "m", "name") if isinstance(step.get(name), str)]
        yield step["do"], *of_what, outcome.get("error", "a value")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_outcomes_are_those_of_ray(player: Engine, file: Path) -> None:
    recorded = json.loads(file.read_text())
    if recorded["python"] != f"{sys.version_info.major}.{sys.version_info.minor}":
        pytest.skip(f"texts of errors are those of Python {recorded['python']}, on which this was recorded")
    assert recorded["programs"]
    different = []
    for program in covering(recorded["programs"], does):
        found = differences(program, program["outcomes"], player.play(program))
        if found:
            different.append(
                f"{json.dumps(program['steps'])}\n" + "\n".join(f"  {step}\n  ray:  {ray}\n  mray: {mray}" for step, ray, mray in found)
            )
    assert not different, "\n".join(different)


def test_every_kind_of_program_is_recorded() -> None:
    kinds = pytest.importorskip("tests.differential.kinds", reason="needs hypothesis", exc_type=ImportError)
    assert {file.stem for file in FILES} == set(kinds.KINDS)
