"""Sessions whose nodes are forked from a template: as fresh as any other, and nothing of it outlives its driver."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

from tests.checkout import python_path

INI = "[pytest]\nasyncio_default_fixture_loop_scope = function\nasyncio_mode = strict\n"

COMMON = """
    import os
    import signal
    from pathlib import Path

    import mray
    from mray._api.current import current_backend

    def node():
        return current_backend().info()["node_pid"]

    def parent(pid):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
"""
TESTS = """
    import sys

    import numpy
    import pytest
    from common import *

    templates, directories = [], set()

    @pytest.fixture
    def changed(monkeypatch):
        monkeypatch.setenv("OF_THIS_TEST", "1")

    @mray.remote
    def told():
        shown = Path(f"/proc/{os.getpid()}/environ").read_bytes().split(b"\\0")
        return dict(os.environ), os.getcwd(), shown

    def check(name, value):
        environment, folder, shown = mray.get(told.remote())
        directory = current_backend().info()["session_dir"]
        assert environment.get(name) == value
        assert environment["PYTEST_CURRENT_TEST"] == os.environ["PYTEST_CURRENT_TEST"].replace("(call)", "(setup)")
        assert folder == os.getcwd()
        assert f"MRAY_SESSION_DIR={directory}".encode() in shown
        assert directory not in directories
        directories.add(directory)

    @pytest.mark.parametrize("number", range(3))
    def test_forked(tmp_path, monkeypatch, mray_fresh, number):
        templates.append(parent(node()))
        assert templates[0] == templates[-1] != os.getpid()
        check("OF_THIS_TEST", None)

    @pytest.fixture
    def no_spinning(monkeypatch):
        monkeypatch.setenv("MRAY_SPIN", "0")

    def test_another_setting_of_ours(no_spinning, mray_fresh):
        assert parent(node()) == templates[0]
        check("MRAY_SPIN", "0")

    def test_numpy_is_there_if_the_driver_has_it(mray_fresh):
        assert parent(node()) == templates[0]
        assert mray.get(mray.remote(lambda: "numpy" in sys.modules).remote())

    @pytest.mark.parametrize("number", range(3))
    def test_another_environment(changed, mray_fresh, number):
        templates.append(parent(node()))
        check("OF_THIS_TEST", "1")
        # The first is started by exec; those that follow want the same, and have a template of their own.
        assert (templates[-1] == os.getpid()) == (number == 0)
        assert templates[-1] != templates[0]

    @pytest.mark.mray(num_cpus=1, resources={"x": 3})
    def test_other_options(changed, mray_fresh):
        assert parent(node()) == templates[-1]
        assert mray.cluster_resources()["x"] == 3

    def test_the_node_dies(changed, mray_fresh):
        assert parent(node()) == templates[-1]
        os.kill(node(), signal.SIGKILL)
        with pytest.raises(mray.exceptions.RayError, match="SIGKILL"):
            mray.get(told.remote())

    def test_the_template_dies(changed, mray_fresh):
        assert parent(node()) == templates[-1]
        os.kill(templates[-1], signal.SIGKILL)
        check("OF_THIS_TEST", "1")

    @pytest.mark.parametrize("number", range(2))
    def test_after_it(changed, mray_fresh, number):
        check("OF_THIS_TEST", "1")
        assert (parent(node()) == os.getpid()) == (number == 0)
        templates.append(parent(node()))

    def test_written(tmp_path):
        Path("templates").write_text(" ".join(map(str, templates)))
"""


def test_sessions_are_forked_from_a_template_as_long_as_they_inherit_the_same(tmp_path: Path) -> None:
    for name, text in {"common.py": COMMON, "test_fresh.py": TESTS, "pytest.ini": INI}.items():
        (tmp_path / name).write_text(textwrap.dedent(text))
    own = ("PYTEST_", "COV", "MRAY_NULL")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    environment["PYTHONPATH"] = python_path()
    words = ["-m", "pytest", "-p", "no:cacheprovider", "-p", "mray.pytest_plugin", "--mray-cpus=2"]
    done = subprocess.run([sys.executable, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert "14 passed" in done.stdout, done.stdout + done.stderr
    for pid in (tmp_path / "templates").read_text().split():
        assert not _lives(int(pid))


DRIVER = """
    from common import *
    from mray._runtime.processes import template

    template.current = template.Template()
    template.current.prepare(os.environ["FOLDER"])
    mray.init(num_cpus=2, logging_level="ERROR")
    worker = mray.get(mray.remote(lambda: os.getpid()).remote())
    assert parent(parent(worker)) == node() and parent(parent(node())) == os.getpid()
    print(parent(node()), node(), parent(worker), worker, flush=True)
    signal.pause()
"""


def test_a_driver_that_is_killed_takes_its_template_and_its_session_along(tmp_path: Path, eventually: Callable[..., None]) -> None:
    for name, text in {"common.py": COMMON, "driver.py": DRIVER}.items():
        (tmp_path / name).write_text(textwrap.dedent(text))
    environment = {**os.environ, "PYTHONPATH": python_path(), "FOLDER": str(tmp_path)}
    driver = subprocess.Popen([sys.executable, "driver.py"], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert driver.stdout is not None
        pids = [int(word) for word in driver.stdout.readline().split()]
        assert len(pids) == 4
    finally:
        driver.kill()
        driver.communicate()
    eventually(lambda: not any(map(_lives, pids)))


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
