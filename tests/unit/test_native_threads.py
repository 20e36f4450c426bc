"""Threads of native libraries, in interpreters of their own: a library reads the number once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

pytest.importorskip("numpy")

PRELUDE = """
import ctypes, json, os
from mray._runtime.processes.native_threads import NativeThreads, loaded_libraries
def numpys():
    for path in loaded_libraries():
        if "openblas" in os.path.basename(path):
            library = ctypes.CDLL("/" + path)
            for name in ("scipy_openblas_get_num_threads64_", "openblas_get_num_threads64_", "openblas_get_num_threads"):
                if hasattr(library, name):
                    return getattr(library, name)()
tasks = lambda: len(os.listdir("/proc/self/task"))
threads = NativeThreads()
"""


def run(program: str, **variables: str) -> Any:
    """The JSON that a program prints."""
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    command = [sys.executable, "-c", PRELUDE + program]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**environment, **variables})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module", autouse=True)
def _has_openblas() -> None:
    if run("import numpy; print(json.dumps(numpys()))") is None:
        pytest.skip("this numpy computes without OpenBLAS")


def test_what_is_loaded_ahead_starts_no_thread_and_is_told_when_a_task_has_more_cpus() -> None:
    program = """
with threads.one_while_loading():
    import numpy
found = [numpys(), tasks(), "OMP_NUM_THREADS" in os.environ]
for count in (1, 2, 1):
    threads.set(count)
    found.append([numpys(), os.environ["OMP_NUM_THREADS"]])
print(json.dumps(found))
"""
    assert run(program) == [1, 1, False, [1, "1"], [2, "2"], [1, "1"]]


def test_what_is_loaded_after_a_first_task_is_told_with_the_next() -> None:
    program = """
threads.set(1)
import numpy
found = [numpys()]
threads.set(2)
print(json.dumps([*found, numpys()]))
"""
    assert run(program) == [1, 2]


def test_a_number_of_the_user_stays() -> None:
    program = """
with threads.one_while_loading():
    import numpy
found = [numpys()]
threads.set(1)
print(json.dumps([*found, numpys(), os.environ["OMP_NUM_THREADS"]]))
"""
    assert run(program, OMP_NUM_THREADS="2") == [2, 2, "2"]
