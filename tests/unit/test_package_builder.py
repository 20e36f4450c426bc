"""Builders of environments side by side: one builds, the others wait; what a killed one left is removed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from mray._runtime.environment.packages import recipe_of

PROGRAM = """
    import os, sys, time
    from mray._runtime.environment import package_builder

    folder, log, gate, how = sys.argv[1:]

    def install(recipe):
        os.mkdir(recipe["folder"])
        with open(log, "a") as file:
            file.write("x")
        while not os.path.exists(gate):
            time.sleep(0.005)
        if how == "fail":
            raise package_builder._FailedError(["pip"], 3)

    package_builder._install = install
    sys.exit(package_builder.build({"folder": folder}))
"""


@pytest.fixture
def builder(tmp_path):
    """Starts a builder whose installer waits for the file ``gate``."""
    started = []

    def start(name="one", how="work"):
        folder = tmp_path / "cache" / name
        words = [str(folder), str(tmp_path / "log"), str(tmp_path / "gate"), how]
        started.append(subprocess.Popen([sys.executable, "-c", textwrap.dedent(PROGRAM), *words], stdout=subprocess.PIPE))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def log(tmp_path):
    return (tmp_path / "log").read_text() if (tmp_path / "log").exists() else ""


def test_several_builders_of_one_environment_install_it_once(builder, tmp_path, eventually):
    processes = [builder() for _ in range(3)]
    eventually(lambda: log(tmp_path) == "x")
    (tmp_path / "gate").touch()
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert log(tmp_path) == "x"
    assert os.listdir(tmp_path / "cache") == ["one"]


def test_a_builder_that_fails_leaves_nothing_and_the_next_one_tries_again(builder, tmp_path):
    (tmp_path / "gate").touch()
    assert builder(how="fail").wait() == 3
    assert os.listdir(tmp_path / "cache") == []
    assert builder().wait() == 0
    assert log(tmp_path) == "xx"


def test_what_a_killed_builder_left_is_removed_by_the_next_of_any_environment(builder, tmp_path, eventually):
    killed = builder("killed")
    eventually(lambda: log(tmp_path) == "x")
    living = builder("living")
    eventually(lambda: log(tmp_path) == "xx")
    killed.kill()
    killed.wait()
    third = builder("third")
    eventually(lambda: log(tmp_path) == "xxx")
    assert sorted(name for name in os.listdir(tmp_path / "cache") if "." not in name) == ["living", "third"]
    (tmp_path / "gate").touch()
    assert living.wait() == third.wait() == 0


def test_a_builder_that_is_told_to_end_leaves_nothing(builder, tmp_path, eventually):
    process = builder()
    eventually(lambda: log(tmp_path) == "x")
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 1
    assert os.listdir(tmp_path / "cache") == []


# ------------------------------------------------------------------------------------------ recipes
BASE = (sys.executable, ("/site",))


def folder_of(**environment):
    environment = {"pip": {"packages": ["a"], "pip_check": False, "cwd": "/here"}, **environment}
    return recipe_of("pip", environment, BASE)["folder"]


def test_an_environment_is_named_by_what_matters(tmp_path, monkeypatch):
    monkeypatch.setenv("MRAY_CACHE_DIR", str(tmp_path))
    plain = folder_of()
    assert plain == folder_of(env_vars={"A": "1"}, config={"setup_timeout_seconds": 3}) == folder_of(working_dir="/tmp")
    assert plain == folder_of(pip={"packages": ["a"], "pip_check": False, "cwd": "/elsewhere"})
    others = [
        folder_of(env_vars={"PIP_INDEX_URL": "x"}),
        folder_of(pip={"packages": ["b"], "pip_check": False, "cwd": "/here"}),
        folder_of(pip={"packages": ["a"], "pip_check": True, "cwd": "/here"}),
        folder_of(pip={"packages": ["a"], "pip_check": False, "pip_version": "==1", "cwd": "/here"}),
        folder_of(pip={"packages": ["-r x.txt"], "pip_check": False, "cwd": "/here"}),
        folder_of(pip={"packages": ["-r x.txt"], "pip_check": False, "cwd": "/there"}),
    ]
    assert len({plain, *others}) == len(others) + 1
    assert plain.startswith(str(tmp_path))


def test_a_package_that_was_made_again_makes_another_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("MRAY_CACHE_DIR", str(tmp_path))
    package = tmp_path / "a.whl"
    package.write_text("one")
    pip = {"packages": [str(package)], "pip_check": False, "cwd": "/here"}
    before = folder_of(pip=pip)
    assert before == folder_of(pip=pip)
    package.write_text("another")
    assert before != folder_of(pip=pip)
