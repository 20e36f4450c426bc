"""The API tests run on every engine of mray and, to learn whether they are right, on real Ray.

``MRAY_TEST_ENGINE`` names what is under test: ``mray`` (default), ``local`` (mray in one process), ``mray-on-ray`` (mray, with
real Ray behind it) or ``ray`` itself. Tests reach the module through fixtures only:

* `ray_session`: the module with a running session (4 CPUs, 2 declared GPUs, 2 "custom") that the tests of a file share.
* `fresh`: the module with no session; the test starts its own.
* `ray`: the module, whatever its state.

Where mray differs on purpose, a test carries ``@pytest.mark.differs("reason")`` and spells out both outcomes; `engine` says which to
expect. ``@pytest.mark.only("mray", "local")`` is for what just these have, ``@pytest.mark.processes("reason")`` for what cannot be in one
process.
"""

from __future__ import annotations

import gc
import importlib
import logging
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.checkout import python_path
from tests.forked import Interpreter

ENGINE = os.environ.get("MRAY_TEST_ENGINE", "mray")
#: The module under test.
MODULE = "ray" if ENGINE == "ray" else "mray"
#: Variables that make `init` start this engine, in programs too.
os.environ.update({"local": {"MRAY_BACKEND": "local"}, "mray-on-ray": {"MRAY_ADDRESS": "ray:local"}}.get(ENGINE, {}))
#: Options of `ray_session`.
SHARED = {"num_cpus": 4, "num_gpus": 2, "resources": {"custom": 2}}
#: Modules that tests use as attributes of the module under test.
SUBMODULES = ("dag", "exceptions", "util", "actor", "runtime_context", "experimental", "runtime_env")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "differs(reason): mray differs from Ray here, on purpose; the test says how")
    config.addinivalue_line("markers", "only(*engines): exists in these engines alone")
    config.addinivalue_line("markers", "processes(reason): needs processes, which a session in one process does not have")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that share a session run first, so that a file starts its session once."""
    for item in items:
        differs = item.get_closest_marker("differs")
        if differs is not None:
            item.user_properties.append(("differs", differs.args[0]))
        only = item.get_closest_marker("only")
        if only is not None and ENGINE not in only.args:
            item.add_marker(pytest.mark.skip(reason=f"only for {' and '.join(only.args)}"))
        processes = item.get_closest_marker("processes")
        if processes is not None and ENGINE == "local":
            item.add_marker(pytest.mark.skip(reason=f"needs processes: {processes.args[0]}"))
    here = str(Path(__file__).parent)
    ours = [item for item in items if str(item.path).startswith(here)]
    order = {item: (str(item.path), "fresh" in getattr(item, "fixturenames", ())) for item in ours}
    queue = iter(sorted(ours, key=order.__getitem__))
    items[:] = [next(queue) if item in order else item for item in items]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[Any]:
    report = yield
    if report.when == "call":
        item.stash[FAILED] = report.failed
    return report


FAILED: pytest.StashKey[bool] = pytest.StashKey()


# ------------------------------------------------------------------------------------ module under test
@pytest.fixture(scope="session")
def engine() -> str:
    """The engine with the expected behaviour: ``"mray"`` (in one process too) or ``"ray"`` (behind mray too)."""
    return "ray" if ENGINE in ("ray", "mray-on-ray") else "mray"


@pytest.fixture(scope="session")
def ray() -> ModuleType:
    """The module under test, its submodules imported."""
    module = importlib.import_module(MODULE)
    for name in SUBMODULES:
        importlib.import_module(f"{MODULE}.{name}")
    return module


def start(ray: ModuleType, **options: Any) -> Any:
    """`init` without what is slow or noisy on Ray."""
    options.setdefault("logging_level", logging.ERROR)
    if MODULE == "ray":
        options.setdefault("include_dashboard", False)
    return ray.init(**options)


@pytest.fixture
def init(fresh: ModuleType) -> Callable[..., Any]:
    """``init(...)`` of the module under test, quiet; `fresh` ends the session."""
    return lambda **options: start(fresh, **options)


@pytest.fixture(scope="module")
def _shared(ray: ModuleType, shared_session: Any) -> Iterator[None]:
    """Ends the session of a file after its last test."""
    yield
    _stop_shared(ray, shared_session)


_before: list[Any] = []


def _stop_shared(ray: ModuleType, shared_session: Any) -> None:
    gc.collect()
    ray.shutdown()
    shared_session.running = False
    if ENGINE == "mray":
        from mray._device.platform import forget_platform

        forget_platform()  # pretended devices keep their pinned memory for the next session
    while _before:
        before, check = _before.pop()
        if ENGINE == "mray":
            check(before)


@pytest.fixture
def ray_session(
    ray: ModuleType, _shared: None, shared_session: Any, belongings: Any, request: pytest.FixtureRequest
) -> Iterator[ModuleType]:
    """The module, with a session that all tests of the file use; its `PRELOAD` names modules that mray's workers start with, its
    `SESSION` has more options of `init`.
    """
    if not (shared_session.running and ray.is_initialized()):
        ray.shutdown()
        now, check = belongings
        _before.append((now(), check))
        # Importing torch in each of many actors would take most of a file's time.
        preload = getattr(request.module, "PRELOAD", None) if ENGINE == "mray" else None
        start(ray, **{**SHARED, **getattr(request.module, "SESSION", {})}, **({"preload": preload} if preload else {}))
        shared_session.running = True
    yield ray
    if request.node.stash.get(FAILED, False):
        # The resources of a failed test (its frames hold handles) must not starve the next one.
        _before.clear()
        _stop_shared(ray, shared_session)
    else:
        gc.collect()


@pytest.fixture
def fresh(ray: ModuleType, shared_session: Any) -> Iterator[ModuleType]:
    """The module without a session; whatever the test starts ends with it."""
    _stop_shared(ray, shared_session)
    yield ray
    gc.collect()
    ray.shutdown()


@pytest.fixture
def segments(ray_session: ModuleType) -> Callable[[], set[str]]:
    """The names of the session's shared memory."""
    from mray._api.current import current_backend

    prefix = f"mray-{current_backend().info()['session']}-"
    return lambda: {name for name in os.listdir("/dev/shm") if name.startswith(prefix)}


@pytest.fixture
def kill_and_wait(ray: ModuleType) -> Callable[[Any], None]:
    """Kill an actor and return once this process knows of its death: `kill` waits only until the signal is sent."""

    def end(actor: Any) -> None:
        ray.kill(actor)
        while True:
            try:
                ray.get(actor.__ray_ready__.remote())
            except ray.exceptions.RayActorError:
                return

    return end


@pytest.fixture
def signal(ray: ModuleType) -> Callable[[], Any]:
    """Makes actors that let tests and tasks wait for each other: `send()`, `wait()`, `waiters()`, `is_set()`."""

    class Signal:
        """Polls, so that it needs no concurrency: `wait` is a loop in the caller."""

        def __init__(self) -> None:
            self.set = False
            self.arrived = 0

        def send(self, value: bool = True) -> None:
            self.set = value

        def is_set(self) -> bool:
            return self.set

        def arrive(self) -> int:
            self.arrived += 1
            return self.arrived

        def count(self) -> int:
            return self.arrived

    return lambda: ray.remote(num_cpus=0)(Signal).remote()


# --------------------------------------------------------------------------------------------- programs
#: What programs are forked from; Ray's begin anew.
_interpreter: list[Interpreter] = []


def pytest_collection_finish(session: pytest.Session) -> None:
    """It is there before tests, and sessions that they share, count their belongings."""
    if MODULE == "mray" and not _interpreter and any("run_program" in getattr(item, "fixturenames", ()) for item in session.items):
        _interpreter.append(Interpreter())
        session.config.add_cleanup(_interpreter[0].close)


@pytest.fixture
def run_program(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a driver program in a process of its own; ``ENGINE`` in its text stands for the module under test.

    `flags` are its interpreter's. Returns the completed process; checks that it ended with 0 unless ``check=False``. The process is forked
    from one that has imported the module; where the test's file says ``ANEW = True`` it is an interpreter of its own.
    """
    anew = not _interpreter or getattr(request.module, "ANEW", False)

    def run(
        text: str,
        *words: str,
        env: dict[str, str | None] | None = None,
        stdin: bool = False,
        check: bool = True,
        name: str = "program.py",
        flags: Sequence[str] = (),
    ) -> subprocess.CompletedProcess[str]:
        source = textwrap.dedent(text).replace("ENGINE", MODULE)
        environment = program_environment(env or {})
        path = tmp_path / name
        if stdin:
            command = [sys.executable, "-i", "-q"]
        else:
            path.write_text(source)
            command = [sys.executable, *flags, str(path), *words]
        if not (anew or stdin or flags or any(variable.startswith("PYTHON") for variable in env or {})):
            done = _interpreter[0].run(str(path), *words, folder=tmp_path, environ=environment)
        else:
            done = subprocess.run(
                command,
                input=source if stdin else None,
                stdin=None if stdin else subprocess.DEVNULL,
                capture_output=True,
                text=True,
                env=environment,
                cwd=tmp_path,
                timeout=150,
                check=False,
            )
        if check and done.returncode != 0:
            pytest.fail(f"program ended with {done.returncode}\n--- stdout\n{done.stdout}\n--- stderr\n{done.stderr}")
        return done

    return run


def program_environment(changes: dict[str, str | None]) -> dict[str, str]:
    environment = dict(os.environ)
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    environment["PYTHONPATH"] = python_path()
    for name, value in changes.items():
        if value is None:
            environment.pop(name, None)
        else:
            environment[name] = value
    return environment
