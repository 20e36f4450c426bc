"""Runtime environments, without a process."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mray._decide.scheduler.policy import INTERPRETER_VARIABLE, PRIVATE_VARIABLES, WRAPPER_VARIABLE
from mray._runtime.environment.environments import variables_of_zygote

AROUND = {"PATH": "/bin", "LANG": "C.UTF-8"}


@pytest.mark.parametrize(
    ("job", "set_there", "at_start"),
    [
        ({"MINE": "1", "PATH": "/own:${PATH}", PRIVATE_VARIABLES + "SETUP": "${"}, {"MINE": "1", "PATH": "/own:/bin"}, {}),
        (
            {"OMP_NUM_THREADS": "1", "TZ": "${MINE}", "MINE": "Asia/Tokyo"},
            {"OMP_NUM_THREADS": "1", "MINE": "Asia/Tokyo"},
            {"TZ": "Asia/Tokyo"},
        ),
        ({"LANG": "C.UTF-8"}, {"LANG": "C.UTF-8"}, {}),
        ({"LD_PRELOAD": "/lib/x.so", "LD_LIBRARY_PATH": "/lib"}, {}, {"LD_LIBRARY_PATH": "/lib"}),
        ({"MINE": "1", WRAPPER_VARIABLE: ""}, {}, {}),
        ({"MINE": "1", INTERPRETER_VARIABLE: ""}, {}, {}),
    ],
)
def test_a_zygote_begins_with_the_variables_of_its_job_expanded(job, set_there, at_start):
    assert variables_of_zygote(job, AROUND) == (set_there, at_start)


@pytest.mark.parametrize("code", ["", "sitecustomize.py", "usercustomize/__init__.py"])
def test_a_python_path_that_runs_code_in_each_interpreter_is_none_of_a_zygotes(tmp_path: Path, code: str):
    if code:
        (tmp_path / code).parent.mkdir(exist_ok=True)
        (tmp_path / code).touch()
    path = os.pathsep.join(("/no/folder", str(tmp_path)))
    assert variables_of_zygote({"PYTHONPATH": path}, AROUND) == ({}, {} if code else {"PYTHONPATH": path})
