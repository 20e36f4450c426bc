"""A long wait says so, and a short one is silent."""

from __future__ import annotations

import logging
import threading

import pytest

from mray._common.slow import told_when_slow, waiting


def test_what_is_quick_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "mray"), told_when_slow("compiling"):
        pass
    assert not caplog.records


def test_the_lines_say_whom_the_operation_waits_for(caplog: pytest.LogCaptureFixture) -> None:
    said = threading.Event()

    def whom() -> str:
        said.set()
        return "for the actor Loader"

    with waiting(lambda: "for no operation"):
        pass
    with caplog.at_level(logging.INFO, "mray"), told_when_slow("compiling", 0.01, 0.01), waiting(lambda: "for another"), waiting(whom):
        assert said.wait(30)
    assert "so far. It waits for the actor Loader." in caplog.text


def test_what_is_slow_says_so_again_and_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    twice = threading.Event()
    seen: list[str] = []

    class Count(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(record.getMessage())
            if len(seen) == 2:
                twice.set()

    handler, logger = Count(), logging.getLogger("mray")
    logger.addHandler(handler)
    try:
        with caplog.at_level(logging.INFO, "mray"), pytest.raises(KeyError), told_when_slow("compiling", 0.01, 0.01):
            assert twice.wait(30)
            raise KeyError
    finally:
        logger.removeHandler(handler)
    assert seen[0].startswith("compiling: ")
    assert "so far" in seen[1]
    assert "over after" in seen[-1]
