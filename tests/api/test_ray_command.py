"""The command ``ray`` of programs under ``mray run``: those that start a cluster themselves, as NeMo Curator's client does, find mray's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mray._joining.address import running
from mray._joining.persistent import stop_persistent
from tests.checkout import python_path

pytestmark = pytest.mark.only("mray")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A temporary directory for sessions; what still runs below it ends with the test."""
    folder = tmp_path / "sessions"
    folder.mkdir()
    yield folder
    left = running(str(folder))
    if left is not None:
        stop_persistent(left, force=True)


@pytest.fixture
def under_run(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a program by ``mray run``."""

    def run(text: str, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        program = tmp_path / "program.py"
        program.write_text(textwrap.dedent(text))
        env = {**os.environ, "PYTHONPATH": python_path(), "MRAY_CACHE_DIR": str(tmp_path / "cache"), **variables}
        command = [sys.executable, "-m", "mray", "run", str(program), *words]
        return subprocess.run(command, capture_output=True, text=True, env=env, check=False, cwd=tmp_path)

    return run


def test_a_program_starts_a_head_itself_joins_it_by_its_port_and_stops_it(fresh, under_run, place):
    done = under_run(
        """
        import os, shutil, subprocess, sys
        def ray_command(*words):
            return subprocess.run(["ray", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

        options = ["--node-ip-address", "127.0.0.3", "--port", "7413", "--include-dashboard", "false", "--disable-usage-stats"]
        options += ["--temp-dir", sys.argv[1], "--num-cpus", "2", "--ray-client-server-port", "10001", "--dashboard-port", "8265"]
        assert ray_command("status").returncode != 0
        started = ray_command("start", "--head", *options)
        assert started.returncode == 0 and "127.0.0.3:7413" in started.stdout, started.stdout
        os.environ["RAY_ADDRESS"] = "127.0.0.3:7413"
        status = ray_command("status")
        assert status.returncode == 0 and "CPU: 0 of 2" in status.stdout and " at 127.0.0.3:7413\\n" in status.stdout, status.stdout
        assert ray_command("health-check").returncode == 0

        import ray
        ray.init(ignore_reinit_error=True, logging_level="ERROR")
        command = ray.get(ray.remote(lambda: shutil.which("ray")).remote())
        print(ray.get(ray.remote(lambda x: x + 1).remote(1)), ray.nodes()[0]["NodeManagerAddress"], ray.get_runtime_context().gcs_address)
        print(command == shutil.which("ray"), os.listdir(os.path.dirname(command)))
        ray.shutdown()
        stopped = ray_command("stop")
        assert stopped.returncode == 0 and "Stopped" in stopped.stdout, stopped.stdout
        assert ray_command("status").returncode != 0
        """,
        str(place),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["2 127.0.0.3 127.0.0.3:7413", "True ['ray']"]
    assert running(str(place)) is None


def test_a_head_that_blocks_ends_with_the_signal_of_its_program(fresh, under_run, place):
    done = under_run(
        """
        import os, signal, subprocess, sys, time
        import ray
        command = ["ray", "start", "--head", "--port=7414", "--temp-dir", sys.argv[1], "--num-cpus", "1", "--block"]
        head = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.environ["RAY_ADDRESS"] = "localhost:7414"
        while subprocess.run(["ray", "health-check"], stderr=subprocess.DEVNULL).returncode:
            assert head.poll() is None
        ray.init(address="auto", logging_level="ERROR")  # the one that the variable names
        print(ray.get(ray.remote(lambda: 5).remote()))
        ray.shutdown()
        os.killpg(head.pid, signal.SIGTERM)
        print(head.wait())
        """,
        str(place),
    )
    assert (done.returncode, done.stdout) == (0, "5\n0\n"), done.stderr
    assert running(str(place)) is None


def test_two_sessions_may_not_have_the_same_port(fresh, under_run, place):
    done = under_run(
        """
        import subprocess, sys
        for number in (1, 2):
            folder = f"{sys.argv[1]}/{number}"
            command = ["ray", "start", "--head", "--port", "7415", "--num-cpus", "1", "--temp-dir", folder]
            done = subprocess.run(command, capture_output=True, text=True)
            print(done.returncode, "7415 is that of another session" in done.stderr)
        print(subprocess.run(["ray", "stop", "--force"], capture_output=True, text=True).stdout.count("Stopped"))
        """,
        str(place),
    )
    assert (done.returncode, done.stdout) == (0, "0 False\n1 True\n1\n"), done.stderr


def test_what_cannot_be_had_is_said_in_words(fresh, under_run):
    done = under_run(
        """
        import json, subprocess
        said = []
        for words in (
            ["start", "--address", "192.0.2.9:6379"], ["start", "--head", "--port", "70000"], ["up", "cluster.yaml"], ["job", "submit"],
            ["start", "--head", "--node-ip-address", ""], ["--version"], ["nothing"], ["--logging-level", "info", "status"],
        ):
            done = subprocess.run(["ray", *words], capture_output=True, text=True)
            said.append([done.returncode, done.stdout + done.stderr])
        print(json.dumps(said))
        """
    )
    assert done.returncode == 0, done.stderr
    joining, port, up, job, host, version, nothing, status = json.loads(done.stdout)
    assert joining[0] == 2 and "one machine" in joining[1] and "init(address=...)" in joining[1]
    assert port[0] == 2 and "70000" in port[1]
    assert up[0] == 2 and "ray up" in up[1] and "one node" in up[1]
    assert job[0] == 2 and "ray job" in job[1]
    assert host[0] == 2 and "Malformed host" in host[1]
    assert version[0] == 0 and version[1].startswith("ray, version 2.")
    assert nothing[0] == 2 and "no command 'nothing'" in nothing[1]
    assert status[0] != 2


def test_ray_s_scripts_run_as_a_module_of_the_program_are_mray_s(fresh, tmp_path):
    command = [sys.executable, "-m", "mray", "run", "-m", "ray.scripts.scripts", "--version"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": python_path(), "MRAY_CACHE_DIR": str(tmp_path)},
    )
    assert done.returncode == 0 and done.stdout.startswith("ray, version 2."), done.stderr
    imported = "from ray.scripts.scripts import main; import sys; sys.argv[1:] = ['--version']; main()"
    command[-3:] = ["-c", imported]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == done.stdout


def test_where_no_file_can_be_written_the_program_runs_all_the_same(fresh, under_run, tmp_path):
    file = tmp_path / "file"
    file.touch()
    done = under_run("import os; print(os.environ['PATH'])", MRAY_CACHE_DIR=str(file / "below"))
    assert (done.returncode, done.stdout.rstrip("\n")) == (0, os.environ["PATH"]), done.stderr


def test_the_state_of_the_session_that_the_variable_names_is_asked_for_and_no_other(fresh, init, run_program, tmp_path):
    init(num_cpus=1)
    address: Any = fresh.get_runtime_context().gcs_address
    program = """
    import subprocess, sys, mray
    from mray.util.state import list_nodes
    from mray.util.state.exception import ServerUnavailable
    print(len(list_nodes()), end=" ")
    other = subprocess.Popen([sys.executable, "-c", "import mray; mray.init(address='local', num_cpus=1); print(1, flush=True); input()"],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    other.stdout.readline()
    print(len(list_nodes()), end=" ")
    import os
    del os.environ["RAY_ADDRESS"]
    try:
        list_nodes()
    except ServerUnavailable as error:
        print("Several" in str(error))
    other.communicate(b"go")
    """
    assert run_program(program, env={"RAY_ADDRESS": address}).stdout == "1 1 True\n"
