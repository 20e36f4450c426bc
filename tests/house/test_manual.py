"""README and manual say what is so: their programs run, their commands and links exist, what is made from the source is as it is there."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mray import cli
from mray._common import settings
from tests.checkout import python_path
from tests.forked import Interpreter
from tests.house.source import ROOT

FOLDER = ROOT / "mray" / "_manual"
#: README and pages, by their path in the checkout.
TEXTS = {str(path.relative_to(ROOT)): path.read_text() for path in (ROOT / "README.md", *sorted(FOLDER.glob("*.md")))}
ALL = "\n".join(TEXTS.values())
FENCE = re.compile(r"^```(.*)\n((?:.*\n)*?)^```$", flags=re.MULTILINE)
#: Characters of a cell of a table.
WIDEST = 200
#: Lines of the front page, and of its part that the two commands must be in.
FRONT_PAGE, FIRST_SCREEN = 230, 40


class Block(NamedTuple):
    """A fenced block."""

    #: Page and number.
    name: str
    language: str
    #: The rest of its info string.
    mark: str
    text: str


BLOCKS = [
    Block(f"{Path(path).stem}-{number}", *(marks.partition(" ")[::2]), text)
    for path, page in TEXTS.items()
    for number, (marks, text) in enumerate(FENCE.findall(page), 1)
]


def prose(page: str) -> str:
    """A page without its fenced blocks."""
    return FENCE.sub("", page)


# ------------------------------------------------------------------------------------------- programs
def programs() -> list[Any]:
    """Blocks marked ``python`` run as they stand; ``gpu``: where there is a GPU; ``pytest``: by pytest; ``notebook``: as a cell."""
    return [
        pytest.param(block, id=block.name, marks=[pytest.mark.gpu] if block.mark == "gpu" else [])
        for block in BLOCKS
        if block.language == "python"
    ]


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Interpreter]:
    """With what all programs import."""
    interpreter = Interpreter("asyncio", "mray.util.state")
    yield interpreter
    interpreter.close()


@pytest.mark.parametrize("block", programs())
def test_programs_run(block: Block, tmp_path: Path, interpreter: Interpreter) -> None:
    path = tmp_path / ("test_program.py" if block.mark == "pytest" else "program.py")
    path.write_text(cell_as_program(block.text) if block.mark == "notebook" else block.text)
    compile(path.read_text(), str(path), "exec")
    if block.mark == "gpu" and not gpus():
        return
    for package in ("torch", "fastapi", "tqdm", "joblib"):
        if f"import {package}" in block.text or f"from {package}" in block.text:
            pytest.importorskip(package)
    if block.mark == "pytest":
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "mray.pytest_plugin", str(path)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return
    status, printed = run(interpreter, path)
    assert status == 0, printed


def run(interpreter: Interpreter, program: Path) -> tuple[int, str]:
    """The exit status of a program, and what it has printed."""
    done = interpreter.run(str(program), folder=program.parent)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [("1 / 0", 1, "ZeroDivisionError"), ("import sys; sys.exit(3)", 3, ""), ("assert __name__ != '__main__'", 1, "")],
)
def test_a_program_that_fails_is_noticed(text: str, status: int, said: str, tmp_path: Path, interpreter: Interpreter) -> None:
    (tmp_path / "program.py").write_text(text)
    ended, printed = run(interpreter, tmp_path / "program.py")
    assert ended == status
    assert said in printed


def cell_as_program(text: str) -> str:
    """A notebook's cell with ``%load_ext`` as IPython does it: import the module, then call its function with the shell."""
    program = r"__import__('importlib').import_module('\1').load_ipython_extension(None)"
    return re.sub(r"^%load_ext (\S+)$", program, text, flags=re.MULTILINE)


def gpus() -> list[Path]:
    return list(Path("/dev").glob("nvidia[0-9]*"))


def test_marks_of_programs_are_known() -> None:
    assert {block.mark for block in BLOCKS if block.language == "python"} <= {"", "gpu", "pytest", "notebook"}


# ------------------------------------------------------------------------------------------- commands
SHELL = [block for block in BLOCKS if block.language == "sh"]
#: Scripts for the shell blocks: a driver that joins the running session, and one with its own.
DRIVER = """
import sys, {module} as ray
ray.init({address})
print(ray.get(ray.remote(lambda: 41 + 1).remote()), *sys.argv[1:])
"""


@pytest.mark.parametrize("text", [pytest.param(block.text, id=block.name) for block in SHELL if block.mark == "run"])
def test_commands_run(text: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(DRIVER.format(module="ray", address=""))
    for name in ("one.py", "two.py"):
        (tmp_path / name).write_text(DRIVER.format(module="mray", address="address='auto'"))
    for name, words in (("mray", "-m mray"), ("python", "")):
        (tmp_path / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        (tmp_path / name).chmod(0o700)
    environ = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": python_path()}
    environ.pop("PYTHONUNBUFFERED", None)  # programs that run beside each other are to write whole lines
    done = subprocess.run(["sh", "-e", "-c", text], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"^42\b", done.stdout, re.MULTILINE)) == len(re.findall(r"\w+\.py", text)), done.stdout + done.stderr


def options_of_programs() -> list[Any]:
    """Each program of the checkout in a block of the shell that is too long to run, with the options that are given to it."""
    found: dict[str, set[str]] = {}
    for block in SHELL:
        for line in block.text.splitlines():
            command = re.match(r"(?:python3? )?((?:tools|bench)/[\w.-]+)([^#]*)", line)
            if command and block.mark != "run":
                found.setdefault(command[1], set()).update(re.findall(r"--[\w-]+", command[2]))
    return [pytest.param(name, options, id=name) for name, options in found.items() if options]


@pytest.mark.parametrize(("name", "options"), options_of_programs())
def test_long_commands_take_their_options(name: str, options: set[str]) -> None:
    done = subprocess.run([sys.executable, name, "--help"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert options <= set(re.findall(r"--[\w-]+", done.stdout))


def commands_of_mray() -> list[Any]:
    """Each command line of ``mray`` that the texts give, in a block of the shell or as code in a sentence, as its words."""
    given = [line.partition("#")[0] for block in SHELL for line in re.split(r"[\n;&]", block.text)]
    given += [code.partition("\\|")[0] for page in TEXTS.values() for code in re.findall(r"`([^`]+)`", prose(page))]
    lines = {tuple(line.split()[1:]) for line in given if re.match(r"mray [a-z]+\b", line)}
    return [pytest.param(words, id=" ".join(words)) for words in sorted(lines)]


@pytest.mark.parametrize("words", commands_of_mray())
def test_commands_of_mray_take_their_options(words: tuple[str, ...]) -> None:
    assert words[0] in cli.names()
    if words[0] == "serve":  # Ray's own
        return
    # All that stands behind a program of `mray run` is the program's.
    own = words[: next((i for i, word in enumerate(words) if "." in word or word in ("-m", "-c")), None)] if words[0] == "run" else words
    options = {word for word in own if word.startswith("--")}
    before = own[1 : next((i for i, word in enumerate(own) if word.startswith("--")), None)]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        cli.load(words[0]).main([*before, "--help"])
    assert options <= set(re.findall(r"--[\w-]+", printed.getvalue())), printed.getvalue()


def test_programs_and_modules_exist() -> None:
    mentioned = set(re.findall(r"\b(?:tools|bench|tests)/[\w./-]*\w", ALL))
    assert not [name for name in mentioned if not (ROOT / name).exists()]
    modules = {name.replace(".", "/") for name in re.findall(r"python3? -m (mray(?:\.\w+)*)", ALL)}
    assert not [name for name in modules if not (ROOT / name).with_suffix(".py").exists() and not (ROOT / name).is_dir()]


def test_extras_exist() -> None:
    declared = (ROOT / "pyproject.toml").read_text()
    extras = {extra for listed in re.findall(r'pip install "?[\w.]*\[([\w,]+)\]', ALL) for extra in listed.split(",")} - {"client"}  # Ray's
    assert extras
    assert not [extra for extra in extras if not re.search(rf"^{extra} = \[", declared, re.MULTILINE)]


def test_settings_exist() -> None:
    assert not {name for name in re.findall(r"\bMRAY_[A-Z_]+\b", ALL) if name not in settings.ALL} - {"MRAY_TEST_FULL", "MRAY_TEST_ENGINE"}


def test_parts_made_from_the_source_are_as_the_source_has_them() -> None:
    done = subprocess.run([sys.executable, "tools/manual"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("tool", ["demo", "test"])
def test_readme_names_the_times_and_sizes_that_the_tools_print(tool: str) -> None:
    (price,) = re.findall(r'^PRICE = "(.*)"', (ROOT / "tools" / tool).read_text(), re.MULTILINE)
    (line,) = re.findall(rf"^python3 tools/{tool} +# (.*)", (ROOT / "README.md").read_text(), re.MULTILINE)
    amounts = re.findall(r"half a minute|\ba minute|\d+ (?:minutes|MB|GB)", line)
    assert amounts
    assert [each for each in amounts if each not in price] == []


# ---------------------------------------------------------------------------------------------- shape
def anchors(page: str) -> set[str]:
    """The headings of a page as places hosted Markdown gives them: lower case, spaces as hyphens, no other signs."""
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)}


def links() -> Iterator[tuple[str, str]]:
    """Page and target of each link that leads into the checkout."""
    for path, page in TEXTS.items():
        yield from ((path, target) for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)) if not target.startswith("https:"))


def test_links_lead_somewhere() -> None:
    assert {"mray/_manual/start.md", "graphs.md"} <= {target for _path, target in links()}
    for path, target in links():
        file, _hash, anchor = target.partition("#")
        led = (ROOT / path).parent / file if file else ROOT / path
        assert led.exists(), f"{path} links to {target}"
        assert not anchor or anchor in anchors(led.read_text()), f"{path} links to {target}"
        assert not path.startswith("mray/") or led.parent == FOLDER, f"{path} links to {target}, which an installed mray lacks"


def test_every_page_is_listed_and_linked_from_the_front_page() -> None:
    pages = {path.name for path in FOLDER.glob("*.md")} - {"index.md"}
    listed = re.findall(r"^\* \[([\w-]+)\]\(([\w-]+\.md)\): \S", TEXTS["mray/_manual/index.md"], re.MULTILINE)
    assert {file for _name, file in listed} == pages
    assert all(file == f"{name}.md" for name, file in listed)
    assert {Path(target).name for path, target in links() if path == "README.md"} - {"LICENSE"} >= pages


@pytest.mark.parametrize("path", TEXTS)
def test_a_page_has_one_title_and_tables_that_can_be_read(path: str) -> None:
    text = prose(TEXTS[path])
    assert len(re.findall(r"^# ", text, re.MULTILINE)) == 1
    assert text.startswith("# ")
    tables = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    for table in tables:
        rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table.splitlines()]
        assert {len(row) for row in rows} == {len(rows[0])}, table
        assert not [cell for row in rows for cell in row if len(cell) >= WIDEST]


def test_the_front_page_is_short_and_begins_with_the_two_commands() -> None:
    lines = TEXTS["README.md"].splitlines()
    assert len(lines) <= FRONT_PAGE
    first = "\n".join(lines[:FIRST_SCREEN])
    assert "tools/demo" in first
    assert "tools/test" in first


@pytest.mark.parametrize("name", ["demo", "test"])
def test_the_two_commands_say_at_their_start_what_the_front_page_says(name: str) -> None:
    (line,) = re.findall(rf"^python3 tools/{name} .*$", TEXTS["README.md"], re.MULTILINE)
    program = (ROOT / "tools" / name).read_text()
    (price,) = re.findall(r'^PRICE = "(.*)"$', program, re.MULTILINE)
    said = re.findall(r"half a minute|\d+ (?:minutes|MB|GB)", line)
    assert len(said) >= 2
    assert [each for each in said if each in price] == said
    assert "This takes {PRICE" in program


def test_no_place_is_left_to_be_filled_in() -> None:
    assert not re.findall(r"FIGURE|TODO|FIXME|TBD|XXX|\?\?\?", ALL)


def test_the_first_program_of_readme_can_be_pasted_into_an_interpreter() -> None:
    """The interactive interpreters up to Python 3.12 end a block at its first blank line, and only there."""
    (program,) = re.findall(r"## Hello world\n\n```python\n(.*?)```", TEXTS["README.md"], re.DOTALL)
    type_in = (
        "import code, sys\nconsole = code.InteractiveConsole()\nfor line in [*sys.stdin.read().splitlines(), '']:\n    console.push(line)\n"
    )
    done = subprocess.run([sys.executable, "-c", type_in], input=program, capture_output=True, text=True, check=True, cwd=ROOT)
    first, second, timed = done.stdout.splitlines()
    assert (first, second) == ("hello", "hello")
    assert re.fullmatch(r"[\d.]+ us, the median of 1,000 calls", timed)
    assert "Error" not in done.stderr


def test_the_pictures_of_readme_lie_in_the_manual_are_small_and_say_what_they_show() -> None:
    shown = re.findall(r"<img (.*?)>", TEXTS["README.md"])
    files = {found[1] for each in shown if (found := re.search(r'src="([^"]+)"', each))}
    assert files == {f"mray/_manual/pictures/{path.name}" for path in (FOLDER / "pictures").iterdir()} != set()
    assert all(re.search(r'alt="[^"]{20,}"', each) for each in shown)
    assert sum((ROOT / file).stat().st_size for file in files) < 150_000
