"""Fixtures for mray on a Ray cluster of two machines, both of them on this one.

`cluster` is made once for the tests of a file, and gone with everything it started when they are over: processes, session directory, names
in shared memory. It is no cluster that `ray.init()` finds by itself, so other users of Ray on this machine never meet it. Skipped where Ray
is not installed.
"""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mray.pytest_plugin.leaks import Belongings, assert_nothing_left, is_foreign

REPOSITORY = Path(__file__).resolve().parents[3]
SHARED_MEMORY = Path("/dev/shm")
#: Seconds that processes may take to be gone.
PATIENCE = 60.0
#: Things that must not be left.
_KINDS = ("process ", "shared memory ", "session directory ")
_STORE = 100 << 20


class Machines:
    """A cluster of a first machine, where the driver is, and a second one that alone has the resource ``second``."""

    def __init__(self, directory: str) -> None:
        cluster_utils = pytest.importorskip("ray.cluster_utils")
        self._cluster = cluster_utils.Cluster()
        first = {"include_dashboard": False, "temp_dir": directory, "_system_config": {"health_check_initial_delay_ms": 0}}
        # Any port. Ray tries out whether a given one is free, and where another Ray has it, leaves the socket of the trial open.
        first["dashboard_port"] = None
        try:
            self.first = self._cluster.add_node(num_cpus=4, object_store_memory=_STORE, **first)
            self.second = self.add_machine({"second": 4})
        except BaseException:  # on a very busy machine Ray gives up waiting for itself
            self.shutdown()
            raise

    def add_machine(self, resources: dict[str, int]) -> Any:
        """One more machine, and what it alone has."""
        return self._cluster.add_node(num_cpus=4, resources=resources, object_store_memory=_STORE)

    @property
    def address(self) -> str:
        """For `mray.init`."""
        return f"ray:{self._cluster.address}"

    def end(self, machine: Any) -> None:
        """A machine that fails: nothing of it says good-bye."""
        self._cluster.remove_node(machine, allow_graceful=False)

    def shutdown(self) -> None:
        self._cluster.shutdown()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Machines]:
    """Two machines."""
    services = pytest.importorskip("ray._private.utils")
    before, names = Belongings.now(), set(os.listdir(SHARED_MEMORY))
    # Short: the paths of sockets are in it.
    directory = tempfile.mkdtemp(prefix="rc", dir="/tmp")
    with pytest.MonkeyPatch.context() as patch:
        # Else every `ray.init()` of this machine would join the cluster.
        patch.setattr(services, "write_ray_address", lambda *_words, **_named: None)
        patch.setenv("PYTHONPATH", str(REPOSITORY), prepend=os.pathsep)
        # Else whatever runs in Ray's workers would come after every other process of the machine.
        patch.setenv("RAY_worker_niceness", "0")
        # Else a program prints besides that an earlier one has asked for what no machine has.
        patch.setenv("RAY_SCHEDULER_EVENTS", "0")
        try:
            machines = Machines(directory)
            try:
                yield machines
            finally:
                machines.shutdown()
        finally:
            shutil.rmtree(directory, ignore_errors=True)
            sweep_semaphores(names)
    assert_no_cluster_left(before)


def assert_no_cluster_left(before: Belongings) -> None:
    """Fail if the cluster has left a process, a name in shared memory or a session; of this process's own threads Ray keeps some."""
    deadline = time.monotonic() + PATIENCE
    while left := [line for line in Belongings.now().more_than(before) if line.startswith(_KINDS) and not is_foreign(line.split()[-1])]:
        if time.monotonic() > deadline:
            pytest.fail("the cluster has left behind:\n  " + "\n  ".join(left))
        time.sleep(0.05)


def sweep_semaphores(before: set[str]) -> None:
    """Ray leaves the semaphores of its graphs' channels, which are named after a process of the cluster that is gone."""
    for name in set(os.listdir(SHARED_MEMORY)) - before:
        for kind in ("sem.hdr", "sem.obj"):
            pid = name.removeprefix(kind).partition("-")[0]
            if name.startswith(kind) and pid.isdigit() and not Path(f"/proc/{pid}").exists():
                (SHARED_MEMORY / name).unlink(missing_ok=True)


@pytest.fixture(autouse=True)
def nothing_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Leftovers of a cluster's processes are looked for when it has ended; a test without it gives its resources back."""
    if "cluster" in request.fixturenames:
        yield
        return
    before = Belongings.now()
    yield
    assert_nothing_left(before)


@pytest.fixture(scope="module")
def driver(cluster: Machines) -> Iterator[ModuleType]:
    """`mray`, this process being a driver of the cluster, for all tests of a file: Ray starts workers anew for each driver."""
    import mray

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MRAY_ADDRESS", cluster.address)
        mray.init(logging_level="ERROR")
        yield mray
        mray.shutdown()


@pytest.fixture
def ray(driver: ModuleType) -> Iterator[ModuleType]:
    """`mray` on the cluster: by the one setting that moves a program there."""
    yield driver
    gc.collect()


@pytest.fixture
def where(ray: ModuleType) -> Callable[[], Any]:
    """A remote function that tells which machine runs it."""
    return ray.remote(lambda *_values: ray.get_runtime_context().get_node_id())
