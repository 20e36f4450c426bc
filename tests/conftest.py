"""Fixtures of every test of the repository: mray's own pytest plugin, and a little more.

* A test that hangs prints the stacks of all threads, and of all processes of its session, then fails, by `pytest-timeout`.
* A test that leaves something behind fails: a process, a shared-memory name, a session directory, a file descriptor or
  a thread (see `mray.pytest_plugin.leaks`). Sessions live in a directory of this run alone.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import logging
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mray.pytest_plugin.leaks import Belongings, Territory, assert_nothing_left

#: Seconds a test may take before it counts as hanging, where nothing else says so. Generous: slow is no failure.
TIME_LIMIT = 300


# ------------------------------------------------------------------------------------------- time limit
@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if config.pluginmanager.hasplugin("timeout") and not (config.getoption("timeout") or config.getini("timeout")):
        config.option.timeout = TIME_LIMIT
    config.add_cleanup(Territory().leave)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # As a shell starts what is to run in the background. Programs of tests inherit it, and wait for theirs in vain.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.pluginmanager.hasplugin("dsession"):
        from xdist.workermanage import NodeManager

        NodeManager.EXIT_TIMEOUT = 20  # seconds until a process is killed that an interrupt has not ended


def pytest_keyboard_interrupt() -> None:
    """pytest-xdist interrupts a process once more after five seconds, which would cut short what fixtures do at their end."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        signal.signal(signal.SIGINT, lambda *_signal: None)


def time_limit(item: pytest.Item) -> float:
    """Seconds this test may take: its marker's, the command line's, the configuration's."""
    marker = item.get_closest_marker("timeout")
    if marker is not None and marker.args:
        return float(marker.args[0])
    if not item.config.pluginmanager.hasplugin("timeout"):
        return float(TIME_LIMIT)
    return float(item.config.getoption("timeout") or item.config.getini("timeout") or TIME_LIMIT)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Print all stacks shortly before the limit: also if the thread that hangs cannot run a signal handler."""
    faulthandler.dump_traceback_later(max(time_limit(item) - 5, 1), file=sys.__stderr__ or sys.stderr)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


# ----------------------------------------------------------------------------------------------- sessions
#: Fixtures of tests that start sessions in this process.
STARTERS = frozenset({"fresh", "ray_session", "session"})


#: Modules that most workers of tests would import, each anew: also pytest, with a function of a file of tests that comes by its name.
OF_WORKERS = (
    "asyncio",
    "pytest",
    "mray.dag",
    "mray.util.collective",
    "mray._backends.graph_host",
    "mray._graph.caller.compiled",
)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Nodes are forked from a process that has imported what they need, which is most of a session's price: as by mray's plugin.

    Nodes of programs are started by exec, and so are those of tests that have changed the environment otherwise than by settings. The
    template is there before a test counts its belongings.
    """
    if os.environ.get("MRAY_TEST_ENGINE", "mray") != "mray" or STARTERS.isdisjoint(getattr(item, "fixturenames", ())):
        return
    if SharedSession.running:  # its end is compared with what was there at its start
        return
    from mray._common import settings
    from mray._runtime.processes import line_coverage, template

    if settings.POINTS.get() or line_coverage.request({}) is not None:
        return
    if template.current is None:
        template.current = template.Template()
        item.config.add_cleanup(template.current.close)
    folder = os.path.join(os.environ["MRAY_TMPDIR"], "template")
    torch = tuple(name for name in getattr(getattr(item, "module", None), "PRELOAD", None) or () if name.startswith("torch"))
    preload = (*OF_WORKERS, *torch)
    with contextlib.suppress(OSError):
        os.makedirs(folder, exist_ok=True)
        if set(Preloaded.names) - set(preload):
            template.current.close()  # workers of this file are without them
        template.current.prepare(folder)
        running = template.current._running
        if running is not Preloaded.by:
            Preloaded.by, Preloaded.names = running, ()
        for name in preload:
            if running is not None and name not in Preloaded.names:
                running.load(name)
                Preloaded.names += (name,)


class Preloaded:
    """Modules that the template has imported for the workers of sessions: torch, for files that preload it, takes seconds, each time."""

    by: Any = None
    names: tuple[str, ...] = ()


# ------------------------------------------------------------------------------------------------ waiting
def wait_until(condition: Callable[[], object], timeout: float = 60.0, what: str = "") -> None:
    """Return once `condition()` is true; fail after `timeout` seconds. The only way tests wait for the world."""
    deadline = time.monotonic() + timeout
    pause = 0.001
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"did not come about within {timeout:g} s: {what or getattr(condition, '__doc__', None) or condition}")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)


@pytest.fixture
def eventually() -> Callable[..., None]:
    """`wait_until` for test files, which cannot import this one."""
    return wait_until


@pytest.fixture
def compiled() -> Iterator[Callable[..., Any]]:
    """``compiled(dag, **options)`` compiles; the graphs are torn down after the test."""
    graphs: list[Any] = []

    def compile_graph(dag: Any, **options: Any) -> Any:
        graphs.append(dag.experimental_compile(**options))
        return graphs[-1]

    yield compile_graph
    for graph in graphs:
        graph.teardown()
    graphs.clear()
    gc.collect()


@pytest.fixture(autouse=True, scope="module")
def frozen_heap() -> None:
    """Collections of garbage, of which tests make many, look only at what a file makes: modules, tests and reports are a large heap."""
    gc.collect()
    gc.freeze()


#: Variables that pytest sets, and joblib when it is imported.
OF_OTHERS = frozenset({"PYTEST_CURRENT_TEST", "KMP_INIT_AT_FORK"})


@pytest.fixture(autouse=True, scope="module")
def same_process() -> Iterator[None]:
    """Files run in one process in any order: each finds it as the first did."""
    level = logging.getLogger("mray").level
    before = state_of_process()
    yield
    logging.getLogger("mray").setLevel(level)  # `init` sets it for good, as with Ray
    if os.environ.get("MRAY_TEST_ENGINE", "mray") == "mray" and "ray" not in sys.modules:  # which changes its process for good
        now = state_of_process()
        assert not {name: (before.get(name), now.get(name)) for name in before.keys() | now if before.get(name) != now.get(name)}


def state_of_process() -> dict[str, object]:
    """Things of the process that a test may change for all after it, by name; not those that the leak checks look at."""
    mask = os.umask(0)
    os.umask(mask)
    return {
        **{f"variable {name}": value for name, value in os.environ.items() if name not in OF_OTHERS},
        "directory": os.getcwd(),
        "umask": mask,
        "handlers": {number: signal.getsignal(number) for number in signal.valid_signals() - {signal.SIGALRM}},
        "blocked": signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        "limits": [resource.getrlimit(number) for number in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_CORE)],
        "processors": os.sched_getaffinity(0),
        "path": list(sys.path),
        "disabled": logging.root.manager.disable,
        "handlers of logs": list(logging.getLogger("mray").handlers),
    }


# ------------------------------------------------------------------------------------------- leak checks
class SharedSession:
    """Whether tests share a running session: then its processes and names may outlive each of them."""

    running = False
    #: The node of one that is nobody's own: its workers come and go beside the tests.
    node_pid = 0


@pytest.fixture(scope="session")
def shared_session() -> type[SharedSession]:
    return SharedSession


@pytest.fixture
def belongings() -> tuple[Callable[[], Belongings], Callable[[Belongings], None]]:
    """``now()`` and ``assert_nothing_left(before)`` for tests that check in the middle."""
    return Belongings.now, assert_nothing_left


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Every test gives back what it took."""
    if os.environ.get("MRAY_TEST_ENGINE", "mray") != "mray":
        yield
        return
    shared = SharedSession.running
    before = Belongings.now()
    yield
    if not shared and not SharedSession.running:
        assert_nothing_left(before, SharedSession.node_pid)
