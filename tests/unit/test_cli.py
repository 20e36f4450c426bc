"""The commands' parts that need no session: printing, filters, what the doctor sees, the numbers of a sample."""

from __future__ import annotations

import fcntl
import mmap
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mray import cli
from mray._device import gpu_checks, libcuda
from mray._device.peer_check import check_peers
from mray._device.platform import forget_platform
from mray._ipc import discovery, sessions
from mray._runtime.node.memory_usage import ProcessMemory
from mray.cli import checks, python_build
from mray.cli.commands.list import columns_help, split_filter
from mray.cli.terminal import EXITS, table, yaml_lines
from mray.util.state import _processes
from mray.util.state._select import check_filters, check_limit, matches
from mray.util.state.api import is_named
from mray.util.state.common import RECORDS, ActorState
from mray.util.state.exception import RayStateApiException


def run(*words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mray", *words], capture_output=True, text=True, check=False, env={**os.environ, **(env or {})}
    )


# ----------------------------------------------------------------------------------------------- commands
def test_the_help_names_every_command_file() -> None:
    done = run("--help")
    files = {path.stem for path in Path(cli.commands.__file__).parent.glob("*.py")} - {"__init__"}
    assert done.returncode == 0
    described = dict(line.split(maxsplit=1) for line in done.stdout.splitlines() if line.startswith("  "))
    assert described == {name: cli.load(name).SUMMARY for name in files}


def test_the_help_imports_no_command() -> None:
    program = "import sys; from mray.cli import main; main(['--help']); print([name for name in sys.modules if 'cli.commands.' in name])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("name", [name for name in cli.names() if name not in ("run", "serve")])
def test_every_command_documents_its_arguments_and_exit_statuses(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([name, "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: mray {name}")
    assert EXITS in text


@pytest.mark.parametrize("words", [["nonsense"], ["list"], ["list", "nonsense"], ["get", "actor"], ["status", "--format", "xml"]])
def test_a_wrong_command_line_ends_with_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status: Any = cli.main(words)
    except SystemExit as ended:
        status = ended.code
    assert status == 2
    assert "usage: mray" in capsys.readouterr().err


# ------------------------------------------------------------------------------------------------ printing
def test_a_table_leaves_out_empty_columns_and_shortens_ids_of_others() -> None:
    rows = [
        {"actor_id": "a" * 32, "name": "", "node_id": "0123456789abcdef" * 2, "pid": 7, "resources": {"CPU": 1.0}},
        {"actor_id": "b" * 32, "name": None, "node_id": "0123456789abcdef" * 2, "pid": 123, "resources": {}},
    ]
    assert table(rows, "actor_id").splitlines() == [
        "ACTOR_ID                          NODE_ID   PID  RESOURCES",
        "a" * 32 + "  01234567    7  CPU: 1",
        "b" * 32 + "  01234567  123",
    ]
    assert table([]) == "(none)"


def test_yaml_keeps_the_shape_and_quotes_texts() -> None:
    value = [{"name": "a: b", "none": None, "yes": True, "node:1": 2.5, "list": [1, {"deep": []}], "empty": {}}]
    assert yaml_lines(value) == [
        '- name: "a: b"',
        "  none: null",
        '  "yes": true',
        '  "node:1": 2.5',
        "  list:",
        "    - 1",
        "    - deep: []",
        "  empty: {}",
    ]
    yaml = pytest.importorskip("yaml")
    assert yaml.safe_load("\n".join(yaml_lines(value))) == value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("state=ALIVE", ("state", "=", "ALIVE")),
        ("state!=DEAD", ("state", "!=", "DEAD")),
        ("name=a=b", ("name", "=", "a=b")),
        ("x=", ("x", "=", "")),
    ],
)
def test_a_filter_is_column_predicate_value(text: str, expected: tuple[str, str, str]) -> None:
    assert split_filter(text) == expected


@pytest.mark.parametrize("text", ["state", "=ALIVE", "!=ALIVE", ""])
def test_what_is_no_filter_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="--filter .*: expected COLUMN=VALUE or COLUMN!=VALUE"):
        split_filter(text)


# ------------------------------------------------------------------------------------------------- records
@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
def test_every_column_says_what_it_means(record: Any) -> None:
    docs = [field.metadata["doc"] for field in record.fields()]
    assert all(doc.endswith(".") for doc in docs)
    assert record.KEY in record.base_columns()
    text = columns_help(record)
    assert all(name in text for name in record.list_columns())


def test_records_have_details_only_on_request() -> None:
    record = ActorState(**dict.fromkeys(ActorState.list_columns(), 1))  # type: ignore[arg-type]
    record.without_details()
    assert (record.pid, record.num_restarts) == (1, None)


def test_a_program_may_set_how_many_rows_a_listing_has_after_it_was_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RayStateApiException, match="limit 40000 exceeds the supported limit 10000"):
        check_limit(40_000)
    with pytest.raises(RayStateApiException, match="limit -1 is no number of rows"):
        check_limit(-1)
    monkeypatch.setenv("RAY_MAX_LIMIT_FROM_API_SERVER", "40000")
    check_limit(40_000)


def test_filters_meet_numbers_and_truth_values_as_texts() -> None:
    row = ActorState(pid=12, is_detached=True, name="Joe")
    assert matches(row, [("pid", "=", "12"), ("is_detached", "=", "TRUE"), ("name", "=", "joe")])
    assert not matches(row, [("is_detached", "=", "0")])
    assert matches(row, [("name", "!=", "jane")])
    assert not matches(row, [("pid", "!=", 12)])
    with pytest.raises(RayStateApiException, match="Failed to convert a value maybe"):
        matches(row, [("is_detached", "=", "maybe")])
    assert check_filters(ActorState, [("State", "=", "alive")]) == (("state", "=", "alive"),)


# ------------------------------------------------------------------------------------------------ sessions
@pytest.fixture
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where sessions of this test have their directories."""
    folder = tmp_path / f"mray-{os.getuid()}"
    folder.mkdir(mode=0o700)
    monkeypatch.setattr(sessions, "session_parents", lambda: [str(folder)])
    return folder


@pytest.fixture
def held() -> Iterator[Any]:
    """Locks a directory as a living session does."""
    files = []

    def hold(directory: Path) -> None:
        fd = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX)
        files.append(fd)

    yield hold
    for fd in files:
        os.close(fd)


def test_a_session_is_alive_while_its_lock_is_held(parent: Path, held: Any) -> None:
    alive, dead = parent / "session_2026-01-01_00-00-00_17_aaaaaaaa", parent / "session_2026-01-01_00-00-01_18_bbbbbbbb"
    for directory in (alive, dead):
        directory.mkdir()
        (directory / "lock").touch()
    held(alive)
    assert sessions.all_sessions() == [(str(alive), True), (str(dead), False)]
    assert sessions.sessions() == [str(alive)]
    # Looking has not taken the lock away.
    assert sessions.is_alive(str(alive))


def test_a_session_is_named_by_its_name_its_end_or_the_pid_of_its_driver() -> None:
    directory = "/tmp/mray-0/session_2026-01-01_00-00-00_17_aaaaaaaa"
    assert all(is_named(directory, word) for word in ("17", "aaaaaaaa", "session_2026-01-01_00-00-00_17_aaaaaaaa"))
    assert not any(is_named(directory, word) for word in ("", "7", "aaaa", "2026-01-01", "00-00-00"))


# -------------------------------------------------------------------------------------------------- doctor
def test_the_doctor_names_who_has_the_memory_when_it_is_full(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MRAY_MEMINFO", str(tmp_path / "meminfo"))
    monkeypatch.setattr("mray.cli.checks.processes", lambda: [ProcessMemory(1, 1, 1 << 20), ProcessMemory(7, 7, 5 << 20)])
    monkeypatch.setattr("mray.cli.checks.command_of", lambda pid: f"program {pid}")

    def found(available: int) -> checks.Finding:
        (tmp_path / "meminfo").write_text(f"MemTotal: 10000 kB\nMemAvailable: {available} kB\n")
        (finding,) = checks.memory([])
        return finding

    assert found(5000).verdict == checks.OK
    assert found(900).verdict == checks.WARNING
    assert found(100).verdict == checks.WARNING
    assert "99%; most has program 7, pid 7: 5.000 MiB" in found(100).text
    (tmp_path / "meminfo").unlink()
    assert [finding.verdict for finding in checks.memory([])] == [checks.NOTE]


@pytest.mark.parametrize(
    ("content", "optimised"),
    [
        (b"..GNU C11 12.2.0 -mtune=generic -g -O3 -fwrapv\0", False),
        (b"..GNU C11 12.2.0 -g -O3 -fprofile-use -fprofile-correction\0", True),
        (b"..clang version 18.1.8\0", None),
        (b"", None),
    ],
)
def test_a_python_that_was_built_without_optimisation_is_told_by_its_own_record(
    content: bytes, optimised: bool | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "libpython"
    path.write_bytes(content)
    assert python_build.is_optimised(str(path)) is optimised
    monkeypatch.setattr(python_build, "interpreter", lambda: str(path))
    assert [finding.verdict for finding in checks.python()] == ([checks.WARNING] if optimised is False else [])


def test_the_interpreter_is_the_file_that_runs() -> None:
    path = python_build.interpreter()
    assert os.path.isfile(path)
    assert "python" in os.path.basename(path)
    assert python_build.is_optimised(f"{path}, not there") is None


def test_the_doctor_removes_what_dead_sessions_left_and_nothing_else(
    parent: Path, held: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    memory = tmp_path / "shm"
    memory.mkdir()
    for module in ("mray.cli.checks.SHM", "mray._ipc.reaper.SHM"):
        monkeypatch.setattr(module, str(memory))
    for module in ("mray.cli.checks.all_sessions",):
        monkeypatch.setattr(module, sessions.all_sessions)
    alive, dead = parent / "session_x_17_aaaaaaaa", parent / "session_y_18_bbbbbbbb"
    for directory in (alive, dead):
        (directory / "logs").mkdir(parents=True)
        (directory / "lock").touch()
    held(alive)
    names = ("mray-aaaaaaaa-table", "mray-bbbbbbbb-table", "mray-cccccccc-p-q0", "other-cccccccc-x")
    for name in names:
        (memory / name).write_bytes(b"x" * 5000)
    found = {finding.text for finding in checks.leftovers()}
    assert any(str(dead) in text for text in found)
    assert any(text.startswith("1 name in") for text in found)
    removed = checks.clean()
    assert removed == [str(dead), str(memory / "mray-cccccccc-p-q0")]
    assert {path.name for path in memory.iterdir()} == {"mray-aaaaaaaa-table", "other-cccccccc-x"}
    assert alive.exists()
    assert not dead.exists()
    assert [finding.verdict for finding in checks.leftovers()] == [checks.OK]
    assert checks.clean() == []


def test_what_ends_while_the_doctor_looks_is_no_left_over(parent: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    memory = tmp_path / "shm"
    memory.mkdir()
    monkeypatch.setattr("mray.cli.checks.SHM", str(memory))
    ending = parent / "session_x_17_aaaaaaaa"
    looks = []

    def all_sessions() -> list[tuple[str, bool]]:
        looks.append(sessions.all_sessions())
        if ending.exists():  # its lock has gone already, and now the rest goes
            (ending / "lock").unlink(missing_ok=True)
            ending.rmdir()
        (memory / "mray-cccccccc-p-q0").unlink(missing_ok=True)
        return looks[-1]

    monkeypatch.setattr("mray.cli.checks.all_sessions", all_sessions)
    ending.mkdir()
    assert [finding.verdict for finding in checks.leftovers()] == [checks.OK]
    assert looks[0] == [(str(ending), False)]
    looks.clear()
    (memory / "mray-cccccccc-p-q0").touch()
    assert [finding.verdict for finding in checks.leftovers()] == [checks.OK]


def test_memory_that_some_process_has_mapped_is_no_left_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("mray.cli.checks.SHM", str(tmp_path))
    for name in ("mray-aaaaaaaa-table", "mray-aaaaaaaa-p-q0", "mray-bbbbbbbb-table"):
        (tmp_path / name).write_bytes(b"x" * 5000)
    with open(tmp_path / "mray-aaaaaaaa-table", "r+b") as file, mmap.mmap(file.fileno(), 0):
        assert checks.left_over().segments == ["mray-bbbbbbbb-table"]
    assert len(checks.left_over().segments) == 3


def test_events_of_gpus_whose_process_is_dead_are_left_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("mray.cli.checks.SHM", str(tmp_path))
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    names = [f"cuda.shm.{os.getuid():x}.{pid:x}.{number}" for pid, number in ((ended.pid, 1), (ended.pid, 2), (os.getpid(), 1))]
    for name in [*names, "cuda.shm.strange"]:
        (tmp_path / name).write_bytes(b"x" * 4096)
    with open(tmp_path / names[0], "r+b") as file, mmap.mmap(file.fileno(), 0):
        assert checks.left_over().events == [names[1]]
    assert checks.left_over().events == names[:2]
    assert {finding.verdict for finding in checks.leftovers() if "events of GPUs" in finding.text} == {checks.WARNING}
    assert {str(tmp_path / name) for name in names[:2]} <= set(checks.clean())
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([names[2], "cuda.shm.strange"])


@pytest.mark.parametrize(
    ("look", "free", "total", "advice"),
    [
        (checks.shared_memory, 60, 64, "--shm-size"),
        (checks.shared_memory, 900, 9216, "almost full: see mray memory"),
        (checks.disk, 400, 9216, "MRAY_TMPDIR names another place"),
    ],
)
def test_the_doctor_warns_where_room_is_short(
    monkeypatch: pytest.MonkeyPatch, look: Callable[[], Iterator[checks.Finding]], free: int, total: int, advice: str
) -> None:
    info = SimpleNamespace(f_frsize=1 << 20, f_blocks=total, f_bavail=free)
    monkeypatch.setattr(os, "statvfs", lambda _path: info)
    finding = next(look())
    assert (finding.verdict, advice in finding.advice) == (checks.WARNING, True)
    assert f"{free}.000 MiB of " in finding.text
    info.f_blocks = info.f_bavail = 1 << 20
    assert {finding.verdict for finding in look()} == {checks.OK}


def test_the_doctor_names_missing_extras(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    rich = next(finding for finding in checks.extras() if finding.subject == "rich")
    assert (rich.verdict, rich.advice) == (checks.NOTE, "pip install 'mray[top]'")


def test_the_doctor_asks_for_what_is_used_and_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """`dot` is a program: the package of Python that has its name is imported by nobody."""
    monkeypatch.setattr("shutil.which", lambda _name: None)
    monkeypatch.setattr("os.access", lambda _path, _mode: False)
    found = {finding.subject: finding for finding in checks.extras()}
    assert {"dot", "py-spy", "rich", "torch"} <= set(found)
    assert "graphviz" not in found
    assert found["dot"].advice == "apt install graphviz"
    assert all(finding.advice for finding in found.values() if finding.verdict != checks.OK)
    package = Path(checks.__file__).parents[1]
    sources = "\n".join(path.read_text() for path in package.rglob("*.py") if path != Path(checks.__file__))
    for module in checks.imported():
        assert re.search(rf"(import|from|find_spec\(\") ?{module}\b", sources), module


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    def pretend(devices: str) -> None:
        monkeypatch.setenv("MRAY_NULL_DEVICES", devices)
        forget_platform()

    yield pretend
    forget_platform()


@pytest.mark.parametrize(
    ("pretended", "driver", "verdict", "text"),
    [
        ("2", libcuda.Driver("12.8", []), checks.OK, "driver for CUDA 12.8; 2 devices seen"),
        ("", libcuda.Driver("11.4", ["cuDeviceGetUuid_v2"]), checks.BAD, "driver for CUDA 11.4; it has no cuDeviceGetUuid_v2"),
        ("", None, checks.BAD, "no driver; mray sees no device"),
    ],
    ids=["fit", "too old", "none"],
)
def test_the_doctor_says_whether_the_driver_is_fit(
    pretend: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    pretended: str,
    driver: libcuda.Driver | None,
    verdict: str,
    text: str,
) -> None:
    pretend(pretended)
    monkeypatch.setattr("mray._ipc.discovery.machine_gpus", lambda: [discovery.Gpu(0, "GPU-0", "H200")])
    monkeypatch.setattr(libcuda, "installed_driver", lambda: driver)
    (found,) = (finding for finding in gpu_checks.devices() if finding.subject == "cuda")
    assert (found.verdict, found.text) == (verdict, text)


def test_the_doctor_draws_the_topology(pretend: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    pretend("3,island=2")
    monkeypatch.setattr(gpu_checks.os, "sched_getaffinity", lambda _pid: {0, 1, 2, 3, 4, 5}, raising=False)
    rows = [(finding.subject, finding.text.split()) for finding in gpu_checks.topology()]
    assert rows == [
        ("gpu topology", ["0", "1", "2"]),
        ("  gpu 0", [".", "NVLink", "far", "cpus", "0-1"]),
        ("  gpu 1", ["NVLink", ".", "far", "cpus", "2-3"]),
        ("  gpu 2", ["far", "far", ".", "cpus", "4-5"]),
    ]


@pytest.mark.parametrize(
    ("devices", "verdict", "text"),
    [
        ("2", checks.OK, "2 of 2 directions"),
        ("2,garbled=1", checks.BAD, "reads wrong contents"),
        ("2,peer=0", checks.NOTE, "does not reach its memory"),
    ],
)
def test_the_doctor_has_gpus_read_a_pattern_from_each_other(pretend: Callable[[str], None], devices: str, verdict: str, text: str) -> None:
    pretend(devices)
    findings = list(gpu_checks.peers())
    assert {finding.verdict for finding in findings} == {verdict}
    assert all(text in finding.text for finding in findings)


@pytest.mark.parametrize(("variable", "value"), [("MRAY_PEER_ACCESS", "0"), ("NCCL_P2P_DISABLE", "1")])
def test_gpus_that_may_not_read_each_other_are_not_tried(
    pretend: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    pretend("2,garbled=1")
    monkeypatch.setenv(variable, value)
    (finding,) = gpu_checks.peers()
    assert finding.verdict == checks.NOTE
    assert "switched off" in finding.text


def test_the_doctor_tells_of_gpus_that_hang(pretend: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    pretend("2,late=100")
    monkeypatch.setattr(gpu_checks, "check_peers", lambda: check_peers(2.0))
    findings = list(gpu_checks.peers())
    assert [finding.verdict for finding in findings] == [checks.BAD]
    assert "hung" in findings[0].text


def test_the_doctor_examines_this_machine_without_an_error() -> None:
    findings = checks.examine()
    subjects = {"mray", "cpu", "shared memory", "open files", "locked memory", "numpy", "left over"}
    assert subjects <= {finding.subject for finding in findings}
    assert all(finding.advice for finding in findings if finding.verdict == checks.BAD)


# ------------------------------------------------------------------------------------------------- samples
@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in that answers as the program does."""
    program = tmp_path / "nvidia-smi"
    program.write_text(
        "#!/bin/sh\n"
        'case "$1" in\n'
        "--query-gpu=index,name,memory.used,memory.total,utilization.gpu)"
        " printf '0, NVIDIA H200, 1024, 143771, 37\\n1, NVIDIA H200, 0, 143771, [N/A]\\n';;\n"
        "--query-compute-apps=pid,used_memory) printf '17, 512\\n17, 256\\n18, [N/A]\\n';;\n"
        "*) exit 2;;\n"
        "esac\n"
        '[ "$2" = --format=csv,noheader,nounits ]\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


@pytest.mark.usefixtures("nvidia_smi")
def test_memory_of_gpus_is_asked_of_nvidia_smi() -> None:
    assert _processes.gpu_memory() == {17: 768 << 20, 18: 0}
    one, two = _processes.gpus()
    assert (one["index"], one["name"], one["used_bytes"], one["busy"]) == ("0", "NVIDIA H200", 1 << 30, 37.0)
    assert (two["used_bytes"], two["busy"]) == (0, 0.0)


def test_every_command_says_in_a_line_what_it_does() -> None:
    summaries = [cli.load(name).SUMMARY for name in cli.names()]
    assert all(0 < len(summary) < 90 and "\n" not in summary for summary in summaries)
    assert len(set(summaries)) == len(summaries)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["start", "--labels", "zone"], "expected key=value,key=value"),
        (["start", "--resources", "{"], "expected a JSON object: Expecting property name"),
        (["start", "--resources", "[1]"], "expected a JSON object"),
        (["docs", "--output", "pages.html"], "--output is for --web"),
        (["top", "--once", "--interval", "0"], "--interval must be more than 0"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_the_error_of_a_wrong_option_says_what_is_expected(words: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    if words[0] == "top":
        pytest.importorskip("rich")
    try:
        status: Any = cli.main(words)
    except SystemExit as ended:
        status = ended.code
    assert status == 2
    assert text in capsys.readouterr().err


# --------------------------------------------------------------------------------------------- completion
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("mray st", {"stack", "start", "status", "stop"}),
        ("mray --v", {"--version"}),
        ("mray list pl", {"placement-groups", "placement_groups"}),
        ("mray list actors --fi", {"--filter"}),
        ("mray start --num-", {"--num-cpus", "--num-gpus"}),
        ("mray stop --fo", {"--force"}),
        ("mray run --", {"--help", "--libraries", "--num-cpus", "--web"}),
        ("mray docs gra", {"graphs"}),
        ("mray serve --", {"--help"}),
        ("mray completion z", {"zsh"}),
    ],
)
def test_a_shell_completes_commands_their_options_and_their_words(line: str, words: set[str], tmp_path: Path) -> None:
    pytest.importorskip("argcomplete")
    answer = tmp_path / "answer"
    asked = {"COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n"}
    environ = {**os.environ, **asked, "_ARGCOMPLETE_STDOUT_FILENAME": str(answer)}
    subprocess.run([sys.executable, "-m", "mray"], env=environ, check=True)
    assert {each.strip() for each in answer.read_text().split("\n")} == words


def test_the_code_for_a_shell_names_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("argcomplete")
    assert cli.main(["completion", "bash"]) == 0
    assert re.search(r"complete .* mray$", capsys.readouterr().out, re.MULTILINE)


def test_completion_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "argcomplete", None)
    assert cli.main(["completion", "zsh"]) == 4
    assert "mray[completion]" in capsys.readouterr().err
