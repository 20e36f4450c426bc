"""The plugin's options, and the errors of wrong ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mray.pytest_plugin import OPTIONS, options
from tests.checkout import python_path

DEFAULTS = {f"mray_{name}": default for name, default, _text, _read in OPTIONS}


class Configuration:
    """As much of pytest's as is asked."""

    inipath = Path("/project/pytest.ini")

    def __init__(self, words: dict[str, str], ini: dict[str, str]) -> None:
        self._words = words
        self._ini = ini

    def getoption(self, name: str) -> str | None:
        return self._words.get(name)

    def getini(self, name: str) -> str:
        return self._ini.get(name, DEFAULTS[name])


def read(words: dict[str, str], ini: dict[str, str]) -> dict[str, object]:
    return options(Configuration(words, ini))  # type: ignore[arg-type]


def test_options_have_values_and_the_command_line_goes_first():
    words = {"mray_cpus": "3", "mray_resources": "x=2, y = 0.5", "mray_leaks": "all"}
    ini = {"mray_cpus": "8", "mray_gpus": "0.5", "mray_preload": "json, os", "mray_engine": " local "}
    found = read(words, ini)
    assert found == {
        "cpus": 3,
        "gpus": 0.5,
        "resources": {"x": 2.0, "y": 0.5},
        "preload": ["json", "os"],
        "engine": "local",
        "leaks": "all",
    }
    assert isinstance(found["cpus"], int)


def test_what_is_not_given_is_none_or_the_default():
    assert read({}, {}) == {"cpus": None, "gpus": None, "resources": None, "preload": None, "engine": None, "leaks": "fixtures"}


WRONG = [
    ("cpus", "x", "'x' is not a number"),
    ("cpus", "1.5.2", "'1.5.2' is not a number"),
    ("gpus", "-1", "'-1' is not an amount"),
    ("gpus", "inf", "'inf' is not an amount"),
    ("cpus", "nan", "'nan' is not an amount"),
    ("resources", "a=1,b", "'b' is not of the form name=amount"),
    ("resources", "=2", "'=2' is not of the form name=amount"),
    ("resources", "a=much", "'much' is not a number"),
    ("preload", "json,,os", "a name is missing in 'json,,os'"),
    ("leaks", "some", "'some' is none of off, fixtures, all"),
]


@pytest.mark.parametrize(("name", "text", "complaint"), WRONG)
def test_a_wrong_value_names_its_option_and_where_it_stands(name, text, complaint):
    with pytest.raises(pytest.UsageError) as caught:
        read({f"mray_{name}": text}, {})
    assert str(caught.value).startswith(f"--mray-{name}={text}: {complaint}")
    with pytest.raises(pytest.UsageError) as caught:
        read({}, {f"mray_{name}": text})
    assert str(caught.value).startswith(f"mray_{name} = {text} in /project/pytest.ini: {complaint}")


@pytest.mark.parametrize("wrong", ["--mray-cpus=x", "mray_cpus = x"])
def test_a_run_with_a_wrong_value_ends_before_it_begins(tmp_path, wrong):
    (tmp_path / "pytest.ini").write_text(f"[pytest]\n{wrong if ' ' in wrong else ''}\n")
    (tmp_path / "test_none.py").write_text("print('imported')\n")
    command = [sys.executable, "-m", "pytest", "-p", "mray.pytest_plugin", "-p", "no:cacheprovider", *(() if " " in wrong else (wrong,))]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env={"PYTHONPATH": python_path()}, check=False)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "imported" not in done.stdout
    assert f"{wrong}{': ' if wrong[0] == '-' else f' in {tmp_path}/pytest.ini: '}'x' is not a number" in done.stderr
    assert "Traceback" not in done.stderr
