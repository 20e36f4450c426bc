"""Tests that need a real GPU: collected everywhere, skipped with the reason where there is none. `pytest tests/gpu` runs them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from mray._device.device import Device, Platform
from mray._device.platform import platform as find_platform
from mray._device.timelines import mark
from tests.conformance.device_kinds import Cuda, Kind, Peer


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    ours = [item for item in items if here in item.path.parents]
    if not ours:
        return
    why = Cuda().why_not()
    for item in ours:
        item.add_marker(pytest.mark.gpu)
        if why:
            item.add_marker(pytest.mark.skip(reason=why))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Tell a failure at once: a later test that hangs in C ends the whole process, and with it pytest's list of failures."""
    report = yield
    terminal = item.config.pluginmanager.getplugin("terminalreporter")
    if report.failed and terminal is not None:
        terminal.write_line(f"{report.nodeid} failed ({report.when}):\n{report.longreprtext}")
        terminal.flush()
    return report


@pytest.fixture(scope="session", autouse=True)
def _timelines() -> None:
    """This process's own stay as long as it: no test leaves them behind."""
    found = find_platform()
    if found is not None:
        mark(found.devices[0], 0)


@pytest.fixture
def kind(eventually: Callable[..., None]) -> Iterator[Kind]:
    found = Cuda()
    yield found
    found.close_when_done(eventually)


@pytest.fixture
def platform(kind: Kind) -> Platform:
    return kind.open()


@pytest.fixture
def device(platform: Platform) -> Device:
    return platform.devices[0]


@pytest.fixture
def start_peer(kind: Kind) -> Iterator[Callable[[], Peer]]:
    """Starts another process that uses the same GPUs."""
    started: list[Any] = []

    def start() -> Peer:
        started.append(Peer(kind))
        return started[-1]

    yield start
    for peer in started:
        peer.close()
