"""A session that has ended leaves its logs and its calls, whichever of its processes has died, and no more than the last ones do."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mray._inside.sessions import EndedSession
from mray._ipc import kept_sessions
from mray.cli.commands import doctor, logs, status, timeline
from mray.cli.commands import list as listing
from mray.cli.terminal import DONE, NO_SESSION, NOT_FOUND

pytestmark = pytest.mark.only("mray")
Run = Callable[..., subprocess.CompletedProcess[str]]

PROGRAM = """
import os, signal, sys, time
import ENGINE as ray

ray.init(num_cpus=2, logging_level="ERROR", log_to_driver=False)

@ray.remote
def add(one, other):
    print(f"adds {one} and {other}")
    return one + other

@ray.remote
def fails():
    print("Fails now", file=sys.stderr)
    raise ValueError("as it must")

@ray.remote
class Joe:
    def hello(self):
        print("hello of joe", flush=True)

    def waits(self):
        open("waits", "w").close()
        time.sleep(600)

@ray.remote(max_retries=0)
def dies():
    os._exit(3)

try:
    ray.get(dies.remote())
except ray.exceptions.WorkerCrashedError:
    pass
assert ray.get([add.remote(1, number) for number in range(3)]) == [1, 2, 3]
joe = Joe.options(name="joe").remote()
ray.get(joe.hello.remote())
joe.waits.remote()
while not os.path.exists("waits"):
    time.sleep(0.001)
try:
    ray.get(fails.remote())
except ValueError:
    pass
"""
#: How the program goes on.
ENDS = {
    "in order": "ray.shutdown()",
    "at exit": "",
    "by a signal to the driver": "os.kill(os.getpid(), signal.SIGKILL)",
}


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of sessions that are kept; programs and commands of the test have it."""
    folder = tempfile.mkdtemp(prefix="kept", dir=os.environ["MRAY_TMPDIR"])
    monkeypatch.setenv("MRAY_TMPDIR", folder)
    monkeypatch.setenv("MRAY_KEPT_SESSIONS", "3")
    yield Path(folder) / f"mray-{os.getuid()}"
    shutil.rmtree(folder)


def ended_sessions() -> list[str]:
    return [each.directory for each in EndedSession.all()]


def names(place: Path) -> list[str]:
    """The entries beside the sessions."""
    return sorted(each.name for each in place.iterdir())


@pytest.mark.parametrize("end", ENDS)
def test_logs_calls_and_timeline_of_a_session_stay_when_it_has_ended(
    end: str, place: Path, run_program: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path, eventually: Callable[..., None]
) -> None:
    run_program(PROGRAM + ENDS[end], check=end != "by a signal to the driver")
    eventually(lambda: ended_sessions() and names(place) == ["last"])
    (directory,) = ended_sessions()
    assert Path(directory).stat().st_mode & 0o777 == 0o700

    assert logs.main(["all", "--last"]) == DONE
    said = {line.partition(") ")[2] for line in capsys.readouterr().out.splitlines()}
    assert {"adds 1 and 0", "adds 1 and 2", "hello of joe", "Fails now"} <= said
    assert logs.main(["joe", "--last", "--grep", "hello"]) == DONE
    assert capsys.readouterr().out == "hello of joe\n"
    assert logs.main(["joe", "--err", "--last"]) == NOT_FOUND

    assert listing.main(["tasks", "--last", "--detail", "--format", "json"]) == DONE
    rows = json.loads(capsys.readouterr().out)
    assert sorted((row["name"], row["state"]) for row in rows) == [
        *[("Joe.hello", "FINISHED"), ("Joe.waits", "RUNNING")],
        *[("add", "FINISHED")] * 3,
        *([] if end == "by a signal to the driver" else [("dies", "FAILED")]),
        ("fails", "FAILED"),
    ]
    (failed,) = [row for row in rows if row["name"] == "fails"]
    assert failed["error_type"] == "TASK_EXECUTION_EXCEPTION" and "as it must" in failed["error_message"]
    assert all(row["start_time_ms"] <= (row["end_time_ms"] or row["start_time_ms"]) for row in rows if row["name"] != "dies")
    assert all(row["end_time_ms"] and row["error_type"] == "WORKER_DIED" for row in rows if row["name"] == "dies")
    assert {row["seconds"] is not None for row in rows if row["start_time_ms"] and row["end_time_ms"]} == {True}
    assert listing.main(["tasks", "--last", "--filter", "name=add", "--limit", "2", "-f", "json"]) == DONE
    output = capsys.readouterr()
    assert (len(json.loads(output.out)), output.err) == (2, "mray: 2 of 3 tasks; --limit for more\n")

    assert timeline.main(["--last", "--output", str(tmp_path / "trace.json"), "--html", str(tmp_path / "page.html")]) == DONE
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {each["name"] for each in events if each["ph"] == "X"} == {"add", "fails", "Joe.hello", "Joe.waits (still running)"}

    assert status.main([]) == NO_SESSION
    assert os.path.basename(directory) in capsys.readouterr().out.split()
    assert logs.main([]) == NO_SESSION
    assert f"--last shows the one that ended last, {os.path.basename(directory)}" in capsys.readouterr().err
    assert logs.main(["--last", "--session", directory.rpartition("_")[2]]) == DONE
    assert logs.main(["--last", "--session", "nonsense"]) == NO_SESSION


def test_the_logs_stay_when_the_node_is_killed(place: Path, run_program: Run, capsys: pytest.CaptureFixture[str]) -> None:
    kill = """
import mray.util.state
(node,) = mray.util.state.list_nodes(detail=True)
os.kill(node.pid, signal.SIGKILL)
try:
    ray.get(joe.hello.remote())
except ray.exceptions.RayError:
    pass
"""
    run_program(PROGRAM + kill)
    assert names(place) == ["last"]
    assert logs.main(["all", "--last"]) == DONE
    assert "adds 1 and 2" in capsys.readouterr().out


def test_the_logs_stay_when_all_are_killed_and_the_next_session_sweeps(
    place: Path, run_program: Run, capsys: pytest.CaptureFixture[str], eventually: Callable[..., None]
) -> None:
    kill = """
from mray._ipc.process import with_variable
directory = ray.util.state.api.session_directory()
for pid in [*with_variable("MRAY_SESSION_DIR", directory), os.getpid()]:
    os.kill(pid, signal.SIGKILL)
"""
    run_program("import mray.util.state.api\n" + PROGRAM + kill, check=False)
    run_program('import ENGINE as ray\nray.init(num_cpus=1, logging_level="ERROR")\nray.shutdown()')
    assert names(place) == ["last"]
    assert logs.main(["all", "--last"]) == DONE
    assert "adds 1 and 2" in capsys.readouterr().out


SHORT = """
import ENGINE as ray
for number in range({count}):
    ray.init(num_cpus=1, logging_level="ERROR", log_to_driver=False)
    @ray.remote
    def prints():
        print("session {name}", number)
    ray.get(prints.remote())
    ray.shutdown()
"""


def test_the_last_three_are_kept_of_many_short_sessions_also_at_once(
    place: Path, run_program: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run_program(SHORT.format(count=5, name="a"))
    assert len(ended_sessions()) == 3
    for number, session in enumerate(ended_sessions(), 2):
        assert logs.main(["all", "--last", "--session", os.path.basename(session)]) == DONE
        assert capsys.readouterr().out.endswith(f"session a {number}\n")
    (tmp_path / "short.py").write_text(SHORT.format(count=3, name="b").replace("ENGINE", "mray"))
    programs = [subprocess.Popen([sys.executable, str(tmp_path / "short.py")], cwd=tmp_path) for _ in range(4)]
    assert [program.wait() for program in programs] == [0] * 4
    assert len(ended_sessions()) == 3
    assert names(place) == ["last"]


@pytest.mark.parametrize("count", ["0", "1"])
def test_a_setting_says_how_many_are_kept_and_a_session_that_did_nothing_is_not(
    count: str, place: Path, run_program: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MRAY_KEPT_SESSIONS", count)
    run_program(SHORT.format(count=2, name="a"))
    assert len(ended_sessions()) == int(count)
    run_program('import ENGINE as ray\nray.init(num_cpus=1, logging_level="ERROR")\nray.shutdown()')
    assert len(ended_sessions()) == int(count)
    assert names(place) == ["last"] * int(count)


def test_of_large_logs_the_ends_are_kept_with_their_order(place: Path, run_program: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run_program("""
import sys
import ENGINE as ray
ray.init(num_cpus=1, logging_level="ERROR", log_to_driver=False)

@ray.remote
def prints(megabytes):
    print("small", file=sys.stderr, flush=True)
    for number in range(megabytes << 10):
        print(f"line {number} " + "x" * 1010)

ray.get(prints.remote(30))
ray.shutdown()
""")
    (session,) = ended_sessions()
    sizes = [path.stat().st_size for path in Path(session).rglob("*") if path.is_file()]
    assert kept_sessions.MOST_BYTES * 0.9 < sum(sizes) <= kept_sessions.MOST_BYTES
    assert logs.main(["all", "--last"]) == DONE
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1000
    assert all(
        line[:12].strip() and f") line {number} x" in line for number, line in zip(range((30 << 10) - 1000, 30 << 10), lines, strict=True)
    )
    assert logs.main(["--last", "--grep", "small"]) == DONE
    assert capsys.readouterr().out.endswith(") small\n")


def test_doctor_names_what_ended_sessions_have_left_and_removes_it(
    place: Path, run_program: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    run_program(SHORT.format(count=2, name="a"))
    left = ended_sessions()
    doctor.main([])
    assert "logs and records of 2 sessions that ended" in capsys.readouterr().out
    doctor.main(["--fix"])
    output = capsys.readouterr().out
    assert all(f"removed {each}\n" in output for each in left)
    assert names(place) == []
    assert logs.main(["--last"]) == NO_SESSION
    assert "MRAY_KEPT_SESSIONS says how many" in capsys.readouterr().err


def test_a_worker_that_is_stopped_delays_the_end_by_a_moment_and_leaves_no_record(place: Path, run_program: Run) -> None:
    run_program("""
import os, signal
import ENGINE as ray
ray.init(num_cpus=1, logging_level="ERROR")

@ray.remote
def pid():
    print("runs", flush=True)
    return os.getpid()

os.kill(ray.get(pid.remote()), signal.SIGSTOP)
ray.shutdown()
""")
    (session,) = ended_sessions()
    assert (EndedSession(session).processes, len(EndedSession(session).node["written"])) == ({}, 1)
    assert names(place) == ["last"]


def test_damaged_records_and_those_of_another_version_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record: dict[str, Any] = {"pid": 1, "calls": [(b"1", "f", 0.0, 1.0, None)] * 100}
    for name in ("whole", "cut", "zeros", "empty"):
        kept_sessions.write_record(str(tmp_path), name, record)
    folder = tmp_path / "records"
    whole = (folder / "whole").read_bytes()
    (folder / "cut").write_bytes(whole[:-1])
    (folder / "zeros").write_bytes(bytes(len(whole)))
    (folder / "empty").write_bytes(b"")
    assert {name: each["calls"] for name, each in kept_sessions.read_records(str(tmp_path)).items()} == {"whole": record["calls"]}
    monkeypatch.setattr(kept_sessions, "__version__", "0")
    assert kept_sessions.read_records(str(tmp_path)) == {}


def test_a_record_is_cut_to_its_bytes_and_an_empty_one_is_not_written(tmp_path: Path) -> None:
    kept_sessions.write_record(str(tmp_path), "long", {"pid": 1, "calls": list(range(100_000))}, 10_000)
    calls = kept_sessions.read_records(str(tmp_path))["long"]["calls"]
    assert calls == list(range(100_000 - len(calls), 100_000))
    assert (tmp_path / "records" / "long").stat().st_size <= 10_000 + 100
    assert len(calls) > 500
    kept_sessions.write_record(str(tmp_path), "empty", {"pid": 1, "calls": []})
    assert not (tmp_path / "records" / "empty").exists()


def test_of_too_many_files_the_oldest_go(tmp_path: Path) -> None:
    directory = tmp_path / "session_x"
    (directory / "logs" / "inner").mkdir(parents=True)
    kept_sessions.mark(str(directory), 1)
    for number in range(kept_sessions.MOST_FILES + 5):
        path = directory / "logs" / ("inner" if number % 2 else ".") / f"{number}.out"
        path.write_text("text\n")
        os.utime(path, (number, number))
    assert kept_sessions.keep(str(directory)) == []
    kept = tmp_path / "last" / "session_x" / "logs"
    assert {int(path.stem) for path in kept.rglob("*.out")} == set(range(5, kept_sessions.MOST_FILES + 5))
    assert kept_sessions.keep(str(directory)) == []
