"""`tools/gpu`: which runs pass."""

from __future__ import annotations

import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools/gpu"


@pytest.fixture
def tool() -> Any:
    spec = spec_from_loader("gpu_tool", SourceFileLoader("gpu_tool", str(TOOL)))
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("statuses", "verdict", "text"),
    [
        ((5, 0), 0, "all passed"),
        ((5,), 1, "FAILED: no test is chosen by -k word"),
        ((0,), 0, "all passed"),
        ((5, 1), 1, "FAILED (exit status 1)"),
        ((5, None), 1, "FAILED (did not end within 900 s)"),
    ],
)
def test_words_that_choose_nothing_in_any_file_are_a_failure(
    tool: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    statuses: tuple[int | None, ...],
    verdict: int,
    text: str,
) -> None:
    names = {f"tests {number}": [str(number)] for number in range(4)}
    monkeypatch.setattr(tool, "steps", lambda _options, rest: {**names, "bench": ["bench"]} if rest == ["-k", "word"] else {})
    ends = iter(statuses)
    monkeypatch.setattr(tool, "run", lambda command, _environ, _limit: next(ends, statuses[0]))
    monkeypatch.setattr(sys, "argv", ["gpu", "--only", "tests", "-k", "word"])
    monkeypatch.setattr(tool, "NEEDED", {})
    assert tool.main() == verdict
    assert text in capsys.readouterr().out
