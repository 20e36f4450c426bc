"""``mray run`` does to a program what ``python`` does: output, arguments, search path, exit status, tracebacks."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

Completed = subprocess.CompletedProcess[str]

REPORT = "import sys\nprint(__name__, sys.argv, repr(sys.path[0]), globals().get('__file__'), __package__, __spec__ and __spec__.name)\n"
PROGRAMS = {
    "report.py": REPORT,
    "main.py": "import sys\nmain = sys.modules['__main__']\nprint(main.__dict__ is globals(), __name__, __doc__, __builtins__)",
    "fails.py": "def f():\n    1 / 0\nf()\n",
    "chained.py": "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise ValueError('x') from e\n",
    "own_hook.py": (
        "import sys, traceback as tb\n"
        "sys.excepthook = lambda kind, value, trace: print(kind.__name__, len(tb.extract_tb(trace)))\n"
        "raise KeyError(1)\n"
    ),
    "syntax.py": "def f(:\n",
    "exit7.py": "import sys, atexit\natexit.register(print, 'at exit')\nsys.exit(7)\n",
    "exit_text.py": "raise SystemExit('the text')\n",
    "interrupted.py": "raise KeyboardInterrupt\n",
    "neighbour.py": "import beside\nprint(beside.value)\n",
    "beside.py": "value = 42\n",
    "package/__init__.py": "",
    "package/__main__.py": REPORT,
    "package/module.py": REPORT + "1 / 0\n",
    "broken/__init__.py": "import nothing_of_that_name\n",
    "folder/__main__.py": REPORT,
}


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    for name, text in PROGRAMS.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / "linked.py").symlink_to(tmp_path / "neighbour.py")
    return tmp_path


def command(folder: Path, before: Sequence[str], words: Sequence[str], given: str = "") -> Completed:
    return subprocess.run([sys.executable, *before, *words], cwd=folder, input=given, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "words",
    [
        ["report.py"],
        ["report.py", "a", "--b", "-c", "-m"],
        ["./package/../report.py"],
        ["main.py"],
        ["fails.py"],
        ["chained.py"],
        ["own_hook.py"],
        ["syntax.py"],
        ["exit7.py"],
        ["exit_text.py"],
        ["interrupted.py"],
        ["neighbour.py"],
        ["link/linked.py"],
        ["folder", "a"],
        ["-m", "package", "a", "-x"],
        ["-m", "package.module", "a"],
        ["-c", REPORT, "a", "-x"],
        ["-c", "1 / 0"],
        ["-", "a"],
    ],
    ids=lambda words: " ".join(words).split("\n")[0],
)
def test_run_does_what_python_does(programs: Path, words: list[str]) -> None:
    ours, pythons = (command(programs, before, words, "import sys; print(sys.argv, sys.path[0])") for before in (["-m", "mray", "run"], []))
    assert ours.stdout == pythons.stdout
    assert ours.stderr == re.sub(r'  File "(<frozen runpy>".*\n|.*/runpy.py".*\n.*\n)', "", pythons.stderr)
    assert ours.returncode == pythons.returncode


def test_an_interrupted_program_dies_of_the_signal(programs: Path) -> None:
    assert command(programs, ["-m", "mray", "run"], ["interrupted.py"]).returncode == -signal.SIGINT


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (["nothing.py"], 2, "can't open file"),
        (["-m", "nothing_of_that_name"], 1, "No module named nothing_of_that_name"),
        (["-m", "broken"], 1, "nothing_of_that_name"),
        (["link"], 1, "can't find '__main__' module"),
        (["-m", "beside.inside"], 1, "Error while finding module specification for 'beside.inside'"),
        (["-m", "itertools"], 1, "No code object available for itertools"),
        (["-m"], 2, "-m needs an argument"),
        (["-c"], 2, "-c needs an argument"),
        (["--unknown"], 2, "no option --unknown"),
        ([], 2, "usage: mray run"),
    ],
)
def test_what_cannot_be_run_is_said(programs: Path, words: list[str], status: int, text: str) -> None:
    done = command(programs, ["-m", "mray", "run"], words)
    assert (done.returncode, done.stdout) == (status, "")
    assert text in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("safe", [False, *([True] if sys.version_info >= (3, 11) else [])], ids=lambda safe: "safe_path" if safe else "")
@pytest.mark.parametrize("name", ["app.pyz", "app"])
def test_a_zip_file_runs_and_finds_what_is_in_it(programs: Path, name: str, safe: bool) -> None:
    with zipfile.ZipFile(programs / name, "w") as archive:
        archive.writestr("__main__.py", "import inside, ray, sys\nprint(inside.__name__, ray.__name__, sys.argv, sys.path[0])")
        archive.writestr("inside.py", "")
    done = command(programs, _before(safe), [name, "a"])
    assert done.stdout == f"inside ray ['{name}', 'a'] {programs / name}\n", done.stderr


@pytest.mark.parametrize("safe", [False, *([True] if sys.version_info >= (3, 11) else [])], ids=lambda safe: "safe_path" if safe else "")
def test_a_folder_runs_and_finds_what_is_in_it(programs: Path, safe: bool) -> None:
    ours, pythons = (command(programs, before, ["folder", "a"]) for before in (_before(safe), ["-P"] if safe else []))
    assert (ours.stdout, ours.stderr) == (pythons.stdout, pythons.stderr)


def _before(safe: bool) -> list[str]:
    return [*(["-P"] if safe else []), "-m", "mray", "run"]


def test_the_facade_is_there_before_the_program(programs: Path) -> None:
    program = "import ray, ray.dag, mray\nfrom ray.exceptions import RayError\nprint(ray.get is mray.get, RayError.__module__)"
    assert command(programs, ["-m", "mray", "run"], ["-c", program]).stdout == "True mray.exceptions\n"


def test_the_facade_is_there_in_workers(programs: Path) -> None:
    (programs / "library.py").write_text(
        "import ray\nfrom ray.dag import InputNode\n\ndef who():\n    return ray.__name__, ray.__version__, InputNode.__module__\n"
    )
    program = """
import ray

@ray.remote
def task():
    import ray.exceptions, library
    try:
        import ray.tune
    except ImportError as error:
        return library.who(), ray.exceptions.__name__, str(error)

@ray.remote
class Actor:
    def who(self):
        return ray.get(task.remote())

ray.init(num_cpus=1)
print(ray.get(Actor.remote().who.remote()))
"""
    (programs / "program.py").write_text(program)
    done = command(programs, ["-m", "mray", "run"], ["program.py"])
    assert done.returncode == 0, done.stderr
    assert "(('ray', '2.60.0', " in done.stdout
    assert "'ray.exceptions', \"No module named 'ray.tune': this part of Ray is not in mray; " in done.stdout


@pytest.mark.parametrize(("words", "status"), [(["--version"], 0), (["--help"], 0), (["run", "--help"], 0), ([], 2), (["nonsense"], 2)])
def test_the_command_explains_itself(words: list[str], status: int) -> None:
    done = subprocess.run([sys.executable, "-m", "mray", *words], capture_output=True, text=True, check=False)
    assert done.returncode == status
    assert "mray" in (done.stderr if status else done.stdout)


def test_help_shows_no_word_for_pytest_and_pytest_finds_it() -> None:
    program = (
        "import mray; from _pytest.assertion.rewrite import AssertionRewriter as A; print(A.is_rewrite_disabled(mray.__doc__)); help(mray)"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said.startswith("True\n")
    assert "Ray's API on one host" in said
    assert "PYTEST" not in said


def test_cpus_and_the_live_page_are_options_for_sessions_that_are_given_none(programs: Path) -> None:
    program = "import ray; context = ray.init({}); print(ray.cluster_resources()['CPU'], context.dashboard_url[:17])"
    for given, options, expected in (
        ("", ["--num-cpus", "3", "--web"], "3.0 http://127.0.0.1:"),
        ("", ["--num-cpus=3"], "3.0 "),
        ("num_cpus=2, web=False", ["--web", "--num-cpus=3"], "2.0 "),
    ):
        done = command(programs, ["-m", "mray", "run"], [*options, "-c", program.format(given)])
        assert done.stdout == f"{expected}\n", done.stderr


@pytest.mark.parametrize("words", [["--num-cpus"], ["--num-cpus", "two"], ["--num-cpus=1.5"], ["--num-cpus=-1"]])
def test_a_wrong_number_of_cpus_is_refused(programs: Path, words: list[str]) -> None:
    done = command(programs, ["-m", "mray", "run"], [*words, "report.py"])
    assert done.returncode == 2
    assert "--num-cpus needs a whole number, not '" in done.stderr
