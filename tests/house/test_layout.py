"""The shape of the checkout: what lies where, which words a file may say."""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter

import pytest

from tests.house.source import ROOT, modules

TOP_LEVEL = {"setup.cfg", "pyproject.toml", "mray", "tests", "bench", "tools", "README.md", "LICENSE"}


def tracked_files() -> list[str]:
    """Files that git tracks or would add; skips where there is no git, such as in an unpacked archive."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    try:
        listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs git and a checkout")
    return listing.stdout.split("\n")[:-1]


def test_top_level_holds_only_the_agreed_entries() -> None:
    odd = {name.partition("/")[0] for name in tracked_files()} - TOP_LEVEL
    assert not {name for name in odd if not name.startswith(".")}


def test_no_module_is_named_after_nothing() -> None:
    empty_words = {"utils", "helpers", "misc", "common", "manager", "handler", "info"}
    ours = [name for name in modules() if "/_" in name]  # the public ones are Ray's names
    assert not [name for name in ours if name.rpartition("/")[2].removesuffix(".py") in empty_words]


def test_every_module_opens_with_what_it_is() -> None:
    assert not [name for name, tree in modules().items() if not ast.get_docstring(tree)]


def test_every_sync_point_has_its_other_side() -> None:
    points = Counter(point for name in modules() for point in re.findall(r"# SYNC POINT ([\w -]+):", (ROOT / name).read_text()))
    assert not [point for point, places in points.items() if places < 2]


def test_programs_can_be_executed() -> None:
    programs = [ROOT / ".ci/run", *(path for path in (ROOT / "tools").iterdir() if path.is_file() and not path.suffix)]
    assert not [str(path) for path in programs if not path.stat().st_mode & 0o111]


def test_texts_name_modules_and_names_that_are_there() -> None:
    """Docstrings and comments point at others: `mray.a.b.Name` is a module, or a name in the source of one."""
    sources = {path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): (ROOT / path).read_text() for path in modules()}
    missing = []
    for where, text in sources.items():
        for name in re.findall(r"`(mray(?:\.\w+)+)", text):
            module, _dot, rest = name, "", ""
            while module not in sources:
                module, _dot, rest = module.rpartition(".")
            if rest and not re.search(rf"\b{rest}\b", sources[module]) and not (ROOT / name.replace(".", "/")).is_dir():
                missing.append(f"{where}: {name}")
    assert not missing
