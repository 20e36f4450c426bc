"""The command line of a worker that stands behind a profiler."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from mray._runtime.environment.profilers import wrapper_of
from mray._runtime.processes.launch import Wrapper, with_python_path
from mray.exceptions import RuntimeEnvSetupError

WORKER = ["/usr/bin/python", "-c", "pass", "worker"]


LIBRARY = [os.path.dirname(os.__file__), os.path.join(os.path.dirname(os.__file__), "lib-dynload")]


@pytest.mark.parametrize(
    ("head", "value", "before", "expected"),
    [
        (["/prog"], "/a:/b", None, ["/prog", "/a", "/b"]),
        (["/prog", "/a"], "/a", "/a", ["/prog", "/a"]),
        (["/prog", "/a", "/b"], "/c", "/a:/b", ["/prog", "/c", "/a", "/b"]),
        (["/prog", "/a", "/b"], "/c:/b", "/a:/b", ["/prog", "/c", "/b", "/a"]),
        (["/mine", "/prog", "/a"], "/c:/a", "/a", ["/mine", "/prog", "/c", "/a"]),
        (["/prog"], ":sub", "", ["/prog", os.getcwd(), os.path.join(os.getcwd(), "sub")]),
        (["/prog", "/a"], "", "/a", ["/prog", "/a"]),
        (["/prog", "/a"], None, "/a", ["/prog", "/a"]),
    ],
)
def test_folders_of_a_python_path_stand_before_the_library_and_before_those_of_an_earlier_one(head, value, before, expected):
    assert with_python_path([*head, *LIBRARY, "/site"], value, before) == [*expected, *LIBRARY, "/site"]


def test_a_wrapper_survives_the_way_through_a_variable():
    wrapper = Wrapper("nsight", False, ("nsys", "profile", "-o", "{output_dir}/a b"))
    assert Wrapper.decode(wrapper.encode()) == wrapper


def test_the_workers_command_stands_behind_that_of_the_wrapper():
    wrapper = Wrapper("profiles", False, ("prof", "--to={output_dir}/x", "--"))
    assert wrapper.wrap(WORKER, "/logs/profiles") == ["prof", "--to=/logs/profiles/x", "--", *WORKER]


def test_a_profiler_inside_the_interpreter_gets_the_arguments_alone():
    wrapper = Wrapper("profiles", True, (sys.executable, "-m", "memray", "run"))
    assert wrapper.wrap(WORKER, "/logs") == [sys.executable, "-m", "memray", "run", "-c", "pass", "worker"]


def test_a_command_may_name_its_own_pid_and_nothing_of_it_is_read_by_the_shell():
    program = "import os, sys; print(os.getpid(), sys.argv[1:])"
    words = ("{pid}", "a{pid}b{pid}", "$HOME `x` 'q' \"d\" * ; {braces}", "", "--")
    command = Wrapper("profiles", False, (sys.executable, "-c", program, *words)).wrap(["python", "two words"], "/logs")
    pid, _, rest = subprocess.run(command, capture_output=True, text=True, check=True).stdout.partition(" ")
    expected = [word.replace("{pid}", pid) for word in words]
    assert rest.strip() == str([*expected, "python", "two words"])


@pytest.mark.parametrize(
    ("options", "command"),
    [
        ("default", "-t cuda,cudnn,cublas,nvtx --stop-on-exit=true -o {output_dir}/worker_process_%p"),
        ({"t": "nvtx"}, "-t nvtx -o {output_dir}/worker_process_%p"),
        ({"o": "mine"}, "-o {output_dir}/mine"),
        ({"output": "mine"}, "-o {output_dir}/mine"),
        ({"o": "/elsewhere/mine", "sample": "none"}, "--sample=none -o /elsewhere/mine"),
    ],
)
def test_options_of_nsys_become_words(options, command, tmp_path):
    program = tmp_path / "nsys"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o700)
    wrapper = wrapper_of({"nsight": options}, str(tmp_path))
    assert wrapper is not None
    assert list(wrapper.command) == [str(program), "profile", *command.split()]


def test_what_is_not_there_is_named(tmp_path):
    assert wrapper_of({"env_vars": {}}, str(tmp_path)) is None
    for environment, text in [({"nsight": "default"}, "nsight is not installed"), ({"profiler": "py-spy"}, "py-spy is not installed")]:
        with pytest.raises(RuntimeEnvSetupError, match=text):
            wrapper_of(environment, str(tmp_path))
    with pytest.raises(TypeError, match="nsight"):
        wrapper_of({"nsight": 7}, str(tmp_path))
    with pytest.raises(TypeError, match="profiler"):
        wrapper_of({"profiler": [1]}, str(tmp_path))


@pytest.mark.parametrize(
    ("environment", "kind", "text"),
    [
        ({"nsight": "default", "profiler": ["x"]}, RuntimeEnvSetupError, "A worker runs under one profiler: runtime_env has 'nsight' and"),
        ({"nsight": 3}, TypeError, r"runtime_env\['nsight'\] must be 'default' or a dict of options of `nsys profile`, got <class 'int'>"),
    ],
    ids=["both", "type"],
)
def test_a_wrong_profiler_is_refused(environment, kind, text, tmp_path):
    with pytest.raises(kind, match=text):
        wrapper_of(environment, str(tmp_path))
