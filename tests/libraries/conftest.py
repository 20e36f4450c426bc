"""Ray's own libraries, on mray and, to learn whether a test is right, on Ray itself: ``MRAY_TEST_ENGINE=ray``.

Where an installed Ray can be used, ``import ray`` means mray with Ray's libraries in all tests of this folder. Fixtures:

* `ray_session`: the module ``ray`` with a session of 4 CPUs that the tests of a file share; a file's `SESSION` has more options of `init`.
* `fresh`: the module with no session. ``init(...)`` starts one, quietly, which ends with the test.
"""

from __future__ import annotations

import gc
import importlib
import logging
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

RAY = os.environ.get("MRAY_TEST_ENGINE") == "ray"
#: Options of `ray_session`.
SHARED = {"num_cpus": 4}
#: Seconds; waits have an end far beyond what they take on a busy machine.
PATIENCE = 60

if not RAY:
    with suppress(ImportError):  # no Ray is installed, or another version: tests ask for what they need of it
        importlib.import_module("mray.libraries")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Warnings of Ray's libraries, and of what they use, are theirs."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore"))


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def start(ray: ModuleType, **options: Any) -> Any:
    """`init` without what is slow or noisy on Ray."""
    options.setdefault("logging_level", logging.ERROR)
    options.setdefault("log_to_driver", False)
    if RAY:
        options.setdefault("include_dashboard", False)
        options.setdefault("address", "local")  # another session on the machine is none of this one's
    return ray.init(**options)


def close_log_files() -> None:
    """Those that Ray's libraries write in the session's directory: each stays open in its handler for as long as the process lives."""
    for reference in list(vars(logging)["_handlerList"]):
        handler = reference()
        inner = getattr(handler, "_handler", None)
        if isinstance(inner, logging.FileHandler):
            inner.close()
            vars(handler)["_handler"] = None


@pytest.fixture(scope="session")
def ray() -> ModuleType:
    """The module, whatever its state."""
    return importlib.import_module("ray")


@pytest.fixture(scope="module")
def _shared(ray: ModuleType, shared_session: Any) -> Iterator[None]:
    """Ends the session of a file after its last test."""
    yield
    _stop_shared(ray, shared_session)


_before: list[Any] = []


def _stop_shared(ray: ModuleType, shared_session: Any) -> None:
    gc.collect()
    ray.shutdown()
    close_log_files()
    shared_session.running = False
    while _before:
        before, check = _before.pop()
        if not RAY:
            check(before)


@pytest.fixture
def ray_session(
    ray: ModuleType, _shared: None, shared_session: Any, belongings: Any, request: pytest.FixtureRequest
) -> Iterator[ModuleType]:
    """The module, with a session that all tests of the file use."""
    if not (shared_session.running and ray.is_initialized()):
        ray.shutdown()
        now, check = belongings
        _before.append((now(), check))
        start(ray, **{**SHARED, **getattr(request.module, "SESSION", {})})
        shared_session.running = True
    yield ray
    gc.collect()


@pytest.fixture
def fresh(ray: ModuleType, shared_session: Any) -> Iterator[ModuleType]:
    """The module without a session; whatever the test starts ends with it."""
    _stop_shared(ray, shared_session)
    yield ray
    _stop_shared(ray, shared_session)


@pytest.fixture
def init(fresh: ModuleType) -> Callable[..., Any]:
    """``init(...)``, quiet; `fresh` ends the session."""
    return lambda **options: start(fresh, **options)
