"""The table of rooms in the manual is whole: each folder of the package, tests that exist and import it, and every test of a module."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.house.source import ROOT, modules, mray_imports, nodes

#: Folders whose tests import what they test; other tests run sessions.
IMPORTING = ("tests/unit", "tests/conformance", "tests/interleavings")
#: Tests of these folders that belong to programs outside the package.
OF_TOOLS = {"tests/unit/test_gpu_first.py", "tests/unit/test_gpu_tool.py"}

_spec = importlib.util.spec_from_file_location("rooms_of_tools", ROOT / "tools" / "rooms.py")
assert _spec is not None and _spec.loader is not None
table = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = table
_spec.loader.exec_module(table)
ROOMS = table.rooms()


@cache
def imported(file: str) -> frozenset[str]:
    """The paths below mray of the names that a test imports, also through modules of the tests."""
    tree = ast.parse((ROOT / file).read_text())
    found = {name.removeprefix("mray").lstrip(".").replace(".", "/") for name in mray_imports(tree)}
    for node in nodes(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests."):
            for module in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                path = Path(*str(module).split(".")).with_suffix(".py")
                if (ROOT / path).exists():
                    found |= imported(str(path))
    return frozenset(found)


def rooms_of(file: str) -> set[str]:
    """The rooms that a test imports something of, and those around them."""
    inner = {room for room in ROOMS for path in imported(file) if path == room or path.startswith(f"{room}/")}
    return inner | {"." for path in imported(file) if table.room_of(path) is None}


def test_every_folder_of_the_package_is_a_room_or_lies_in_one() -> None:
    folders = {path.removeprefix("mray/").rpartition("/")[0] for path in modules()}
    assert not {folder for folder in folders if folder and table.room_of(folder) is None}
    assert not {name for name in ROOMS if name != "." and not (ROOT / "mray" / name).is_dir()}


@pytest.mark.parametrize("name", ROOMS)
def test_the_tests_of_a_room_exist_and_import_it(name: str) -> None:
    room = ROOMS[name]
    assert room.owns and room.seconds > 0
    assert not [test for test in room.tests if not room._replace(tests=(test,)).files()]
    here = [file for file in room.files() if file.startswith(IMPORTING)]
    assert not [file for file in here if imported(file) and name not in rooms_of(file)]


def test_every_test_of_a_module_belongs_to_a_room() -> None:
    listed = {file for room in ROOMS.values() for file in room.files()} | OF_TOOLS
    tests = {str(path.relative_to(ROOT)) for folder in IMPORTING for path in (ROOT / folder).glob("test_*.py")}
    assert not {f"{file} imports {', '.join(sorted(rooms_of(file)))}" for file in tests - listed}


def test_an_unknown_room_is_refused_and_help_shows_the_option() -> None:
    done = subprocess.run([sys.executable, "tools/test", "--room", "_none"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "invalid choice: '_none'" in done.stderr and "'_ipc'" in done.stderr
