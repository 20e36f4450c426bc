"""Workers have the libraries that the program has imported, from a process that imported them at the same time. Programs of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")
if os.environ.get("MRAY_TEST_ENGINE") == "ray":
    pytest.skip("processes of mray", allow_module_level=True)

BEGIN = """
import json, os, sys
from pathlib import Path
import mray.libraries, ray, ray.data
from mray._api.current import current_backend
def children(pid=os.getpid()):
    found = [each for thread in os.listdir(f"/proc/{pid}/task") for each in Path(f"/proc/{pid}/task/{thread}/children").read_text().split()]
    return {int(each): Path(f"/proc/{each}/comm").read_text().strip() for each in found}
@ray.remote
def modules():
    return sorted({"ray.data", "pandas"} & set(sys.modules)), os.environ.get("OF_THE_PROGRAM")
def session():
    ray.init(num_cpus=1, logging_level="ERROR", log_to_driver=False)
    node = current_backend().facts()["node_pid"]
    (found, own) = ray.get(modules.remote())
    ray.shutdown()
    return [found, own, sorted(children().values()), node]
"""
FULL = ["pandas", "ray.data"]


def run(program: str, **environ: str) -> Any:
    """The JSON that a program prints."""
    own = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"} | environ
    done = subprocess.run([sys.executable, "-c", BEGIN + program], capture_output=True, text=True, check=False, timeout=100, env=own)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_sessions_are_forked_from_it_until_the_program_changes_its_environment() -> None:
    first, second, last = run("""
first = session()
second = session()
os.environ["OF_THE_PROGRAM"] = "1"
last = session()
print(json.dumps([first[:3], second[:3], last[:3]]))
""")
    assert first == second == [FULL, None, ["ray::template"]]
    assert last == [FULL, "1", []]  # imported anew, with the variable, and the process has ended


def test_there_is_none_where_the_setting_says_so_or_another_engine_is_asked_for() -> None:
    program = "print(json.dumps(list(children().values())))"
    assert run(program, MRAY_HEAD_START="0") == run(program, MRAY_BACKEND="local") == []


def test_packages_count_that_the_program_names_and_not_what_these_import() -> None:
    assert run("""
import ray.tune.integration
print(json.dumps([name for name in os.environ["MRAY_PRELOAD"].split(",") if name.startswith("ray.")]))
""") == ["ray.data", "ray.tune", "ray.tune.integration"]


def test_it_ends_with_its_driver() -> None:
    own = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    program = BEGIN + "print(json.dumps(list(children())), flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=own) as process:
        assert process.stdout is not None
        (pid,) = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 60
    while _runs(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _runs(pid)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
