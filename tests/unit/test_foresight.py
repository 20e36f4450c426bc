"""Imports that are foreseen, in interpreters of their own: zygote and worker are one process and its fork."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mray._runtime.processes.foresight import note_of_program, take_note

#: A package that stands for a heavy one, in a folder that comes first.
PACKAGE = {
    "transformers/__init__.py": "import time, colorsys, light; time.sleep(0.11); from . import parts, sets; LOADED = light.count()",
    "transformers/parts.py": "",
    "transformers/sets.py": "import os; os.environ.setdefault('KMP_DUPLICATE_LIB_OK', 'True')",
    "light.py": "import os\npids = []\ndef count():\n    pids.append(os.getpid())\n    return len(pids)",
    "scipy.py": "",
    "sklearn.py": "raise SystemExit(3)",
    "pandas.py": "import time, threading; time.sleep(0.11); threading.Thread(target=threading.Event().wait, daemon=True).start()",
}
PRELUDE = """
import importlib.util, json, os, sys
from mray._runtime.processes.foresight import Foresight
NOTE, FOLDER = sys.argv[1:]
sys.path.insert(0, FOLDER)
def noted():
    return sorted(name.partition(".")[2] for name in os.listdir(os.path.dirname(NOTE)))
def note(*names):
    for name in names:
        open(f"{NOTE}.{name}", "w").close()
def in_worker(do):
    sys.stdout.flush()
    if not os.fork():
        print(json.dumps(do()), flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.fixture
def run(tmp_path: Path) -> Callable[[str], list[Any]]:
    """Runs a program beside the packages; returns all JSON that it prints."""
    (tmp_path / "notes").mkdir()
    for name, text in PACKAGE.items():
        path = tmp_path / "modules" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")

    def run(program: str) -> list[Any]:
        command = [sys.executable, "-c", PRELUDE + textwrap.dedent(program), str(tmp_path / "notes/it"), str(tmp_path / "modules")]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run


def test_a_note_is_taken_once_and_has_no_other_names_than_those_of_heavy_packages(tmp_path):
    note = note_of_program(str(tmp_path))
    for name in ("torch", "numpy", "os", "../torch"):
        (tmp_path / f"{os.path.basename(note)}.{os.path.basename(name)}").touch()
    assert list(take_note(note)) == ["numpy", "torch"]
    assert list(take_note(note)) == []


@pytest.mark.parametrize("change", [("argv", ["other.py"]), ("path", ["/elsewhere"]), ("executable", "/bin/other")])
def test_another_program_path_or_python_has_another_note(monkeypatch, change):
    before = note_of_program("/notes")
    monkeypatch.setattr(sys, *change)
    assert note_of_program("/notes") != before


def test_a_worker_notes_heavy_packages_that_took_long_and_only_when_it_imports_them(run):
    program = """
    Foresight(NOTE).import_noted()
    def do():
        found = importlib.util.find_spec("transformers").origin
        before = noted()
        import transformers, scipy, light
        return before, noted(), found == transformers.__spec__.origin, type(transformers.__loader__).__name__, light.count()
    in_worker(do)
    print(json.dumps([noted(), oct(os.stat(f"{NOTE}.transformers").st_mode & 0o777)]))
    """
    assert run(program) == [[[], ["transformers"], True, "SourceFileLoader", 2], [["transformers"], "0o600"]]


def test_a_package_that_fails_or_keeps_a_thread_is_not_noted(run):
    program = """
    Foresight(NOTE).import_noted()
    def do():
        try:
            import sklearn
        except SystemExit as error:
            import pandas
            return error.code, noted()
    in_worker(do)
    """
    assert run(program) == [[3, []]]


def test_a_package_whose_variables_the_worker_has_changed_is_not_noted_and_imported_again_if_it_can_be(run):
    program = """
    note("transformers")
    Foresight(NOTE).import_noted()
    os.environ["OMP_NUM_THREADS"] = "1"
    def do():
        os.environ["TRANSFORMERS_VERBOSITY"] = "error"
        import transformers.parts, light
        return noted(), os.getpid() in light.pids, transformers.LOADED
    in_worker(do)
    in_worker(lambda: (__import__("transformers").LOADED, noted()))
    """
    assert run(program) == [[[], True, 2], [1, ["transformers"]]]


def test_what_is_loaded_ahead_appears_when_the_worker_imports_it_and_only_then_is_noted_again(run):
    program = """
    note("transformers")
    Foresight(NOTE).import_noted()
    OWN = ("transformers", "transformers.parts", "light")
    shown = lambda: [name for name in OWN if name in sys.modules]
    pid = os.getpid()
    print(json.dumps(noted()))
    in_worker(lambda: (shown(), noted(), "colorsys" in sys.modules, os.environ.get("KMP_DUPLICATE_LIB_OK")))
    def do():
        import transformers.parts
        now = shown(), os.environ["KMP_DUPLICATE_LIB_OK"]
        import light
        return now, noted(), light.pids == [pid], transformers.LOADED, transformers.parts.__spec__.name, transformers.__spec__._initializing
    in_worker(do)
    def part():
        os.unlink(f"{NOTE}.transformers")
        import light
        return shown(), light.pids == [pid], noted()
    in_worker(part)
    """
    assert run(program) == [
        [],
        [[], [], True, None],
        [[["transformers", "transformers.parts", "light"], "True"], ["transformers"], True, 1, "transformers.parts", False],
        [["light"], True, []],
    ]


def test_a_module_of_the_same_name_that_comes_first_in_a_workers_path_is_the_one_it_imports(run):
    program = """
    note("transformers")
    Foresight(NOTE).import_noted()
    other = os.path.join(FOLDER, "other")
    os.mkdir(other)
    open(os.path.join(other, "transformers.py"), "w").write("OTHER = 1")
    def do():
        sys.path.insert(0, other)
        import transformers
        return transformers.OTHER, noted()
    in_worker(do)
    """
    assert run(program) == [[1, []]]


def test_packages_that_are_missing_or_fail_are_left_to_the_program(run):
    program = """
    note("sklearn", "transformers", "torch")
    class NoTorch:
        def find_spec(self, name, path=None, target=None):
            if name == "torch":
                raise ModuleNotFoundError(name)
    sys.meta_path.insert(0, NoTorch())
    Foresight(NOTE).import_noted()
    in_worker(lambda: __import__("transformers").LOADED)
    """
    assert run(program) == [1]


def test_a_numpy_that_was_loaded_ahead_is_seeded_in_each_worker(run):
    pytest.importorskip("numpy")
    program = """
    note("numpy")
    Foresight(NOTE).import_noted()
    print(json.dumps("numpy" in sys.modules))
    for _ in range(2):
        in_worker(lambda: __import__("numpy").random.random())
    """
    loaded, first, second = run(program)
    assert not loaded
    assert first != second
