"""The README says what is so: its settings are the declared ones, its programs run, its commands exist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mray._common import settings
from tests.house.source import ROOT

README = (ROOT / "README.md").read_text()
#: Info string and text of each fenced block.
BLOCKS = re.findall(r"^```(.*)\n((?:.*\n)*?)^```$", README, flags=re.MULTILINE)


def programs() -> list[Any]:
    """Blocks marked ``python`` run as they stand; ``python gpu`` on a machine with a GPU; ``python fragment`` is only compiled."""
    found = []
    for number, (marks, text) in enumerate(BLOCKS):
        language, _, mark = marks.partition(" ")
        if language == "python":
            found.append(pytest.param(mark, text, id=f"block-{number}", marks=[pytest.mark.gpu] if mark == "gpu" else []))
    return found


@pytest.mark.parametrize(("mark", "text"), programs())
def test_programs_run(mark: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(text)
    compile(text, str(path), "exec")
    if mark == "fragment" or (mark == "gpu" and not gpus()):
        return
    command = [sys.executable, "-m", "mray", "run"] if re.search(r"^(import|from) ray\b", text, re.MULTILINE) else [sys.executable]
    done = subprocess.run([*command, str(path)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def gpus() -> list[Path]:
    return list(Path("/dev").glob("nvidia[0-9]*"))


def test_settings_are_the_declared_ones() -> None:
    assert settings_table() in README, f"the README's table of settings should be\n\n{settings_table()}"


def settings_table() -> str:
    """The table as the README must have it."""
    lines = ["| variable | Ray's name | value | default | meaning |", "|---|---|---|---|---|"]
    for setting in settings.ALL.values():
        ray = f"`{setting.ray}`" if setting.ray else ""
        lines.append(f"| `{setting.name}` | {ray} | {setting.kind} | {shown(setting.default)} | {setting.doc} |")
    return "\n".join(lines) + "\n"


def shown(default: Any) -> str:
    if isinstance(default, bool):
        return "on" if default else "off"
    return "" if default in (None, (), {}) else f"`{default}`"


SHELL = [(number, marks, text) for number, (marks, text) in enumerate(BLOCKS) if marks.split()[:1] == ["sh"]]
#: Scripts for the README's shell blocks: a driver that joins the running session, and one with its own.
DRIVER = """
import sys, {module} as ray
ray.init({address})
print(ray.get(ray.remote(lambda: 41 + 1).remote()), *sys.argv[1:])
"""


@pytest.mark.parametrize("text", [pytest.param(text, id=f"block-{number}") for number, marks, text in SHELL if marks == "sh run"])
def test_commands_run(text: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(DRIVER.format(module="ray", address=""))
    for name in ("one.py", "two.py"):
        (tmp_path / name).write_text(DRIVER.format(module="mray", address="address='auto'"))
    for name, words in (("mray", "-m mray"), ("python", "")):
        (tmp_path / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        (tmp_path / name).chmod(0o700)
    environ = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    environ.pop("PYTHONUNBUFFERED", None)  # programs that run beside each other are to write whole lines
    done = subprocess.run(["sh", "-e", "-c", text], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"^42\b", done.stdout, re.MULTILINE)) == len(re.findall(r"\w+\.py", text)), done.stdout + done.stderr


def options_of_programs() -> list[Any]:
    """Each program of the checkout in a block of the shell that is too long to run, with the options that are given to it."""
    found: dict[str, set[str]] = {}
    for _number, marks, text in SHELL:
        for line in text.splitlines() if marks == "sh" else ():
            command = re.match(r"(?:python3? )?((?:tools|bench)/[\w.-]+)([^#]*)", line)
            if command:
                found.setdefault(command[1], set()).update(re.findall(r"--[\w-]+", command[2]))
    return [pytest.param(name, options, id=name) for name, options in found.items() if options]


@pytest.mark.parametrize(("name", "options"), options_of_programs())
def test_long_commands_take_their_options(name: str, options: set[str]) -> None:
    done = subprocess.run([sys.executable, name, "--help"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert options <= set(re.findall(r"--[\w-]+", done.stdout))


def test_commands_exist() -> None:
    shell = "\n".join(text for _number, _marks, text in SHELL)
    mentioned = set(re.findall(r"\b(?:tools|bench)/[\w.-]+", shell + README))
    assert not [name for name in mentioned if not (ROOT / name).exists()]
    modules = set(re.findall(r"python3? -m (mray(?:\.\w+)*)", README))
    assert not [
        name
        for name in modules
        if not (ROOT / name.replace(".", "/")).with_suffix(".py").exists() and not (ROOT / name.replace(".", "/")).is_dir()
    ]


def test_links_inside_the_checkout_lead_somewhere() -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", README)
    assert not [link for link in links if not (ROOT / link).exists()]


def test_no_place_is_left_to_be_filled_in() -> None:
    assert not re.findall(r"FIGURE|TODO|FIXME|TBD|XXX|\?\?\?", README)
