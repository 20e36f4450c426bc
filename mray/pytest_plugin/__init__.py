"""mray in the test suites of others: sessions for tests, checks for leaks, stacks of hanging processes.

::

    pytest ──entry point──▶ options, fixtures, hooks by name (here) ──first use──▶ run.Run ──▶ leaks, stacks, frames
                                                                                      └──▶ mray.init, mray.util.testing.reset

`mray_session` gives a session that is started once and reset after each test, `mray_fresh` one for each test. Tests that use them are
checked for leaks, and the stacks of all processes are printed shortly before a test's time limit. Each process of a run has its own
sessions, so pytest-xdist needs nothing.

pytest loads this module in every run where mray is installed, so it imports only the public names of mray until a test uses a fixture.

Rejected: a reset before each test instead of after: the leaks of one test would be blamed on the next.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

# ------------------------------------------------------------------------------------------------ options
LEAKS = ("off", "fixtures", "all")


def _amount(text: str) -> float:
    """Whole numbers as an int, which `mray.init` requires for CPUs."""
    try:
        amount = int(text)
    except ValueError:
        try:
            amount = float(text)  # type: ignore[assignment]
        except ValueError:
            raise ValueError(f"{text!r} is not a number") from None
    if not math.isfinite(amount) or amount < 0:
        raise ValueError(f"{text!r} is not an amount: 0 is the least, and it must be finite")
    return amount


def _amounts(text: str) -> dict[str, float]:
    found = {}
    for pair in text.split(","):
        name, equals, amount = (word.strip() for word in pair.partition("="))
        if not (name and equals):
            raise ValueError(f"{pair.strip()!r} is not of the form name=amount")
        found[name] = float(_amount(amount))
    return found


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise ValueError(f"a name is missing in {text!r}")
    return names


def _leaks(text: str) -> str:
    if text not in LEAKS:
        raise ValueError(f"{text!r} is none of {', '.join(LEAKS)}")
    return text


#: On the command line (``--mray-NAME``) and in the configuration (``mray_NAME``): name, default, help, parser of its text (not called
#: without a text; its ValueError describes what is wrong).
OPTIONS: tuple[tuple[str, str, str, Callable[[str], Any]], ...] = (
    ("cpus", "", "CPUs of the sessions that fixtures start (default: what this process may use)", _amount),
    ("gpus", "", "GPUs of the sessions that fixtures start, pretended where there are none", _amount),
    ("resources", "", "other resources of these sessions: name=amount,name=amount", _amounts),
    ("preload", "", "modules that workers start with: name,name", _names),
    ("engine", "", "native, local, or an address such as ray:local (default: what the environment says)", str),
    ("leaks", "fixtures", "who is checked for what it leaves behind: off, fixtures (tests that use mray's fixtures), all", _leaks),
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("mray")
    for name, default, text, _read in OPTIONS:
        group.addoption(f"--mray-{name}", dest=f"mray_{name}", default=None, help=text)
        parser.addini(f"mray_{name}", text, default=default)


def options(config: pytest.Config) -> dict[str, Any]:
    """The value of each option; None: not given. UsageError names an invalid one."""
    values = {}
    for name, _default, _text, read in OPTIONS:
        given = config.getoption(f"mray_{name}")
        text = str(config.getini(f"mray_{name}") if given is None else given).strip()
        try:
            values[name] = read(text) if text else None
        except ValueError as error:
            place = f"--mray-{name}={given}" if given is not None else f"mray_{name} = {text} in {config.inipath or 'the configuration'}"
            raise pytest.UsageError(f"{place}: {error}") from None
    return values


# ------------------------------------------------------------------------------------------------ one run


class Plugin:
    """This module's state for one run."""

    def __init__(self, config: pytest.Config) -> None:
        self.options = options(config)
        #: The real stderr, while tests replace it.
        self.stderr = os.dup(sys.__stderr__.fileno()) if sys.__stderr__ is not None else 2
        self._loaded: Any = None

    @property
    def loaded(self) -> Any:
        """The plugin proper: `mray.pytest_plugin.run.Run`."""
        if self._loaded is None:
            from mray.pytest_plugin.run import Run  # noqa: PLC0415  (pytest loads this module where no test uses mray)

            self._loaded = Run(self.options, self.stderr)
        return self._loaded

    def concerns(self, item: pytest.Item) -> bool:
        """Whether this test uses mray: by its fixtures, or because earlier tests have."""
        return "mray._backends" in sys.modules or not FIXTURES.isdisjoint(getattr(item, "fixturenames", ()))

    def end(self) -> None:
        if self._loaded is not None:
            self._loaded.end()
        if self.stderr != 2:
            os.close(self.stderr)


FIXTURES = frozenset({"mray_session", "mray_fresh"})
PLUGIN: pytest.StashKey[Plugin] = pytest.StashKey()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "mray(**options): options of mray.init() for the session that `mray_fresh` starts for this test")
    plugin = config.stash[PLUGIN] = Plugin(config)
    config.add_cleanup(plugin.end)
    if plugin.options["leaks"] == "all":
        config.pluginmanager.register(EveryTest(), "mray-every-test")


class EveryTest:
    """Fixtures for ``--mray-leaks=all``."""

    @pytest.fixture(autouse=True)
    def _mray_leaves_nothing(self, request: pytest.FixtureRequest) -> Iterator[None]:
        yield from request.config.stash[PLUGIN].loaded.leaving_nothing(request.node)


@pytest.fixture(scope="session")
def _mray_shared(request: pytest.FixtureRequest) -> Iterator[None]:
    """End the shared session with the last test, before pytest-cov combines its data."""
    yield
    request.config.stash[PLUGIN].loaded.end_shared()


@pytest.fixture
def mray_session(request: pytest.FixtureRequest, _mray_shared: None) -> Iterator[Any]:
    """The module `mray`, with a session that all tests of the run share. It is reset after each test."""
    yield from request.config.stash[PLUGIN].loaded.shared(request.node)


@pytest.fixture
def mray_fresh(request: pytest.FixtureRequest) -> Iterator[Any]:
    """The module `mray`, with a session for this test; ``@pytest.mark.mray(num_cpus=2, ...)`` sets the options of `init`."""
    yield from request.config.stash[PLUGIN].loaded.fresh(request.node)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[Any]:
    """Print what every process is doing shortly before a test's time limit."""
    plugin = item.config.stash[PLUGIN]
    if not plugin.concerns(item):
        return (yield)
    with plugin.loaded.watching(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[Any]:
    """Hide mray's frames in the traceback of a test that fails by its own error."""
    plugin = item.config.stash[PLUGIN]
    if call.excinfo is not None and plugin.concerns(item) and not item.config.getoption("fulltrace", False):
        plugin.loaded.hide(call.excinfo)
    return (yield)
