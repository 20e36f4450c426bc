"""Wherever a program is started, mray works, or says at once why it cannot.

One driver (`program.py`), a row per surrounding: made by how it is started, or inside of it by a function of its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.checkout import python_path
from tests.faults.surroundings.users import ALONE_ID, NOBODY, as_root_beside_nobody, needs_root

REPOSITORY = Path(__file__).resolve().parents[3]
PROGRAM = Path(__file__).with_name("program.py")
#: Seconds after which what should come about counts as never coming about.
PATIENCE = 60.0


@dataclass(frozen=True)
class Surrounding:
    """How the program is started."""

    name: str
    #: The interpreter's flags, what goes before it, and variables (None: without it).
    flags: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    variables: Mapping[str, str | None] = field(default_factory=dict)
    #: The report of the program, or the beginning of an error.
    reports: str = "well"


NO_INTERPRETER = "mray starts its processes with the interpreter in sys.executable, and {}/host is"

INSIDE = {
    "in_a_thread": "well",
    "in_a_daemon": "well",
    "without_standard_files": "well",
    "without_python_streams": "well",
    "in_a_folder_that_is_gone": "well",
    "with_a_path_from_here": "well",
    "with_umask_0": "well",
    "with_umask_0777": "PermissionError: the umask of this process takes its own user's rights away",
    "with_few_open_files": "well",
    "with_far_too_few_open_files": "RaySystemError: System error: mray needs 128 open files in each process, and here 16 are allowed",
    "with_sigchld_ignored": "well",
    "with_sigpipe_deadly": "well",
    "with_all_signals_blocked": "well",
    "without_an_environment": "well",
    "without_its_interpreter": "RaySystemError: System error: sys.executable is empty",
    "with_very_short_files": "OSError: [Errno 27] File too large: process ",
    "with_files_shorter_than_an_object": "OSError: [Errno 27] File too large: process ",
    "in_a_host_program": "well",
    "in_a_host_program_without_an_interpreter": f"RaySystemError: System error: {NO_INTERPRETER} no Python interpreter of this version:",
    "in_a_host_program_with_the_interpreter_of_another_version": "RaySystemError: System error: mray starts its processes with",
    "in_a_frozen_program": f"RaySystemError: System error: {NO_INTERPRETER} a frozen application:",
    "with_gevent": "RaySystemError: System error: gevent has replaced Python's socket (monkey patching)",
    "with_eventlet": "RaySystemError: System error: eventlet has replaced Python's socket (monkey patching)",
    "under_a_guard_of_sockets": "well",
    "under_a_guard_of_open": "well",
    "under_a_guard_of_files": "well",
    "with_a_fake_file_system": "well",
    "in_a_forked_child": "well",
    "in_a_spawned_child": "well",
}
OUTSIDE = [
    Surrounding("under_setsid", before=("setsid", "--wait")),
    Surrounding("under_nohup", before=("nohup",)),
    Surrounding("without_assertions", flags=("-O",)),
    Surrounding("with_a_safe_path", variables={"PYTHONSAFEPATH": "1"}),
    Surrounding("with_a_home_that_is_read_only", variables={"HOME": "/proc", "XDG_CACHE_HOME": None}),
    Surrounding("with_an_empty_path", variables={"PATH": ""}),
    Surrounding("in_the_c_locale", variables={"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}),
    Surrounding("in_latin_1", variables={"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "latin-1"}),
]
ROWS = [Surrounding(name, reports=reports) for name, reports in INSIDE.items()] + OUTSIDE


class Start:
    """Starts programs, and sees what came of them."""

    def __init__(self) -> None:
        #: Short, for the names of sockets in it, and such that everybody may have sessions there. (Pytest's own folder is closed by every
        #: other run of it.)
        self.sessions = Path(tempfile.mkdtemp(prefix="ms", dir="/tmp"))
        self.sessions.chmod(0o1777)
        self.folder = self.sessions / "work"
        self.folder.mkdir()
        self.folder.chmod(0o777)

    def run(self, surrounding: Surrounding, *program: str, word: str = "") -> str:
        """The report of the program; once it has come, nothing of its session is left."""
        result = self.folder / "result"
        environment = {**os.environ, "MRAY_TMPDIR": str(self.sessions), "PYTHONPATH": python_path()}
        for name, value in surrounding.variables.items():
            environment.pop(name, None)
            if value is not None:
                environment[name] = value
        words = [sys.executable, *surrounding.flags, *(program or (str(PROGRAM),)), word or surrounding.name, str(result)]
        words[:0] = [shutil.which(surrounding.before[0]) or "", *surrounding.before[1:]] if surrounding.before else []
        ended = subprocess.run(words, env=environment, cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE)
        self._await(result.exists, lambda: f"no report, exit {ended.returncode}: {ended.stderr.decode(errors='replace')}")
        # The driver has gone before its node may be done.
        self._await(lambda: not self.left(), lambda: f"left behind: {self.left()}")
        return result.read_text()

    def left(self) -> list[str]:
        return [str(path) for path in self.sessions.glob("*/*") if "session_" in path.name]

    @staticmethod
    def _await(condition: object, complaint: object) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():  # type: ignore[operator]
            if time.monotonic() > deadline:
                pytest.fail(complaint())  # type: ignore[operator]
            time.sleep(0.005)


@pytest.fixture
def start() -> Iterator[Start]:
    start = Start()
    yield start
    shutil.rmtree(start.sessions, ignore_errors=True)


@pytest.mark.parametrize("surrounding", ROWS, ids=lambda row: row.name)
def test_a_program_works_or_says_why_not(start: Start, surrounding: Surrounding) -> None:
    expected = surrounding.reports.replace("{}", str(start.folder))
    assert start.run(surrounding)[: len(expected)] == expected


def test_a_program_works_in_isolated_mode(start: Start) -> None:
    code = f"import sys, runpy; sys.path.insert(0, {str(REPOSITORY)!r}); runpy.run_path({str(PROGRAM)!r}, run_name='__main__')"
    assert start.run(Surrounding("isolated", flags=("-I", "-c")), code) == "well"


@pytest.fixture
def long(start: Start) -> Path:
    """A folder whose path is too long for the name of a socket in it."""
    long = start.sessions / ("x" * 120) / ("y" * 250)
    long.mkdir(parents=True)
    return long


def test_a_program_works_where_names_of_sockets_would_be_too_long(start: Start, long: Path) -> None:
    assert start.run(Surrounding("long", variables={"MRAY_TMPDIR": str(long)})) == "well"
    assert [path.name for path in long.iterdir()] == [f"mray-{os.getuid()}"], "the session was there"


MEETING = """
import os, sys, mray

def in_any(folder):
    return mray.init(address="auto", _temp_dir=folder, logging_level="ERROR").address_info["session_dir"]

for folder in sys.argv[1:]:
    assert in_any(folder).startswith(folder), in_any(folder)
    mray.shutdown()
"""


def test_sessions_in_two_places_of_long_names_do_not_meet(start: Start, long: Path) -> None:
    places = [long / "one", long / "two"]
    command = (sys.executable, "-m", "mray")
    environment = {**os.environ, "PYTHONPATH": python_path()}
    environment.pop("MRAY_TMPDIR", None)

    def run(*words: str) -> str:
        return subprocess.run(words, env=environment, check=True, capture_output=True, text=True, timeout=PATIENCE).stdout

    try:
        for place in places:
            place.mkdir()
            run(*command, "start", "--head", "--num-cpus", "1", "--temp-dir", str(place))
        run(sys.executable, "-c", MEETING, *map(str, places))
        for place in places:
            (session,) = (path for path in (place / f"mray-{os.getuid()}").iterdir() if path.name.startswith("session_"))
            assert "CPU" in run(*command, "status", "--session", str(session)), "those who look on find their way too"
    finally:
        for place in places:
            run(*command, "stop", "--temp-dir", str(place))


def pack(path: Path, members: Mapping[str, bytes]) -> None:
    """Make a zip file."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


#: The package, as members of a zip file.
MRAY = {str(path.relative_to(REPOSITORY)): path.read_bytes() for path in (REPOSITORY / "mray").rglob("*.py")}


def test_a_zip_file_with_its_modules_works_as_a_program(start: Start) -> None:
    pack(start.folder / "app.pyz", {"inside.py": PROGRAM.read_bytes(), "__main__.py": b"import inside\ninside.main()\n"})
    assert start.run(Surrounding("zipped"), "app.pyz") == "well"


def test_mray_in_a_zip_file_works(start: Start) -> None:
    pack(start.folder / "library.zip", MRAY)
    code = "import sys, mray, runpy; assert 'library.zip' in mray.__file__; runpy.run_path(sys.argv.pop(1), run_name='__main__')"
    variables = {"PYTHONPATH": str(start.folder / "library.zip")}
    assert start.run(Surrounding("zipped", flags=("-c", code), variables=variables), str(PROGRAM)) == "well"


def test_a_zip_file_with_mray_in_it_works_as_a_program(start: Start) -> None:
    main = "import mray, inside\nassert 'app.pyz' in mray.__file__\ninside.main()\n"
    pack(start.folder / "app.pyz", {**MRAY, "inside.py": PROGRAM.read_bytes(), "__main__.py": main.encode()})
    assert start.run(Surrounding("zipped", variables={"PYTHONPATH": None}), "app.pyz") == "well"


@pytest.mark.parametrize("plugin", ["with_the_plugin", "without_the_plugin"])
def test_a_program_works_inside_a_worker_of_pytest_xdist(start: Start, plugin: str) -> None:
    (start.folder / "test_inside.py").write_text(
        textwrap.dedent(
            """
            import os, runpy, sys

            def test_it():
                assert os.environ["PYTEST_XDIST_WORKER"]
                sys.argv[1:] = ["inside", os.environ["RESULT"]]
                runpy.run_path(os.environ["PROGRAM"], run_name="__main__")
            """
        )
    )
    loads = "-pmray.pytest_plugin" if plugin == "with_the_plugin" else "-pno:mray.pytest_plugin"
    words = ("-n1", loads, "-pno:cacheprovider", "-c/dev/null", "--rootdir=.", "-oasyncio_mode=strict", "test_inside.py")
    code = "import os, runpy, sys; os.environ['RESULT'] = sys.argv.pop(); sys.argv.pop(); runpy.run_module('pytest', run_name='__main__')"
    assert start.run(Surrounding("xdist", flags=("-c", code), variables={"PROGRAM": str(PROGRAM)}), *words) == "well"


SHARED_MEMORY_OF_ITS_OWN = 'mount -t tmpfs -o size=64m tmpfs /dev/shm && exec "$@"'
NEW_SPACES = ("unshare", "--pid", "--fork", "--mount", "--mount-proc")


@needs_root
def test_a_program_works_in_a_small_container_whose_first_process_waits_for_nobody(start: Start) -> None:
    before = (*NEW_SPACES, "/bin/sh", "-c", SHARED_MEMORY_OF_ITS_OWN, "sh")
    tried = subprocess.run([*before, "true"], capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"no namespaces here: {tried.stderr}")
    assert start.run(Surrounding("in_a_small_container", before=before)) == "well"


@needs_root
@pytest.mark.parametrize("word", ["after_root", "in_a_folder_of_roots"])
def test_a_program_works_that_has_given_up_the_rights_of_root(start: Start, word: str) -> None:
    closed = start.folder / "closed"
    closed.mkdir(mode=0o700)
    variables = {"CLOSED_FOLDER": str(closed)}
    assert start.run(Surrounding(word, before=as_root_beside_nobody(), variables=variables)) == "well"


@needs_root
def test_who_may_have_no_more_processes_is_told_so_and_goes_on(start: Start) -> None:
    """As root, to become a user who has nothing else here: the kernel counts all processes of a user, and none of root's."""
    variables = {"USER_ID": str(ALONE_ID)}
    assert start.run(Surrounding("without_room_for_a_process", before=as_root_beside_nobody(), variables=variables)) == "well"


@needs_root
def test_a_program_works_for_nobody(start: Start) -> None:
    before: Sequence[str] = (*as_root_beside_nobody(), *NOBODY)
    assert start.run(Surrounding("nobody", before=tuple(before))) == "well"
