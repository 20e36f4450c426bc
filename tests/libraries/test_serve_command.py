"""``mray serve`` in a session that stays, and Ray's command ``serve`` on a cluster that ``ray start`` has begun."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import wait_until
from tests.full import full
from tests.libraries.conftest import PATIENCE, free_port

RAY = os.environ.get("MRAY_TEST_ENGINE") == "ray"
MRAY = [sys.executable, "-m", "mray"]
PROGRAMS = Path(sys.executable).parent
SERVE = [str(PROGRAMS / "serve")] if RAY else [*MRAY, "serve"]
PROGRAM = """
import os
from ray import serve

@serve.deployment
class Hello:
    def reconfigure(self, config):
        self.word = config["word"]

    def __call__(self, request):
        return f"{self.word} {os.getpid()}"

app = Hello.options(user_config={"word": "hello"}).bind()
"""
CONFIG = """
http_options: {{port: {port}}}
applications:
  - name: greeting
    import_path: program:app
    runtime_env: {{}}
    deployments:
      - {{name: Hello, num_replicas: {replicas}, user_config: {{word: {word}}}}}
"""


class Terminal:
    """Commands in a folder that has the program."""

    def __init__(self, folder: Path, temporary: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.environ = {**os.environ, "TMPDIR": str(temporary)}

    def do(self, *command: str, fails: bool = False) -> str:
        """Standard output and errors of a command that succeeds, or may fail."""
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=self.folder, env=self.environ, timeout=PATIENCE)
        assert fails or done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def serve(self, *words: str, fails: bool = False) -> str:
        return self.do(*SERVE, *words, fails=fails)

    def deploy(self, word: str, replicas: int = 1) -> None:
        (self.folder / "config.yaml").write_text(CONFIG.format(port=self.port, word=word, replicas=replicas))
        self.serve("deploy", "config.yaml")

    def fetch(self, port: int = 0) -> list[str]:
        """The words of the answer; none when nobody answers, or there is nothing at this place."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port or self.port}/", timeout=PATIENCE) as answer:
                return str(answer.read().decode()).split()
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
            return []
        except OSError:
            return []


@contextmanager
def cluster_of_ray(terminal: Terminal) -> Iterator[None]:
    """One that ends with the command that has begun it: ``ray stop`` would end every cluster of the machine."""
    port, dashboard = free_port(), free_port()
    terminal.environ |= {"RAY_ADDRESS": f"127.0.0.1:{port}", "RAY_DASHBOARD_ADDRESS": f"http://127.0.0.1:{dashboard}"}
    terminal.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}  # its dashboard answers nobody else
    words = f"--head --block --num-cpus 4 --port {port} --dashboard-port {dashboard} --disable-usage-stats --dashboard-agent-listen-port 0"
    own = {**terminal.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(terminal.folder), os.environ.get("PYTHONPATH"))))}
    del own["RAY_ADDRESS"]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        command = [str(PROGRAMS / "ray"), "start", *words.split(), "--temp-dir", folder]
        with subprocess.Popen(command, env=own, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as start:
            try:
                wait_until(lambda: start.poll() is not None or "applications" in terminal.serve("status", fails=True), 4 * PATIENCE)
                yield
            finally:
                start.terminate()
                start.wait(PATIENCE)


@pytest.fixture
def terminal(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """With a session that has begun, and ends with the test."""
    (tmp_path / "program.py").write_text(PROGRAM)
    terminal = Terminal(tmp_path, tmp_path_factory.mktemp("t"))
    if RAY:
        with cluster_of_ray(terminal):
            yield terminal
        return
    terminal.do(*MRAY, "start", "--head", "--num-cpus", "4")
    yield terminal
    terminal.do(*MRAY, "stop")


@full
def test_a_configuration_is_deployed_changed_in_place_shown_and_shut_down(terminal: Terminal) -> None:
    assert "applications: {}" in terminal.serve("status")
    terminal.deploy("hello")
    wait_until(lambda: terminal.fetch()[:1] == ["hello"])
    wait_until(lambda: "status: RUNNING" in terminal.serve("status"))
    _word, pid = terminal.fetch()
    terminal.deploy("goodbye")
    wait_until(lambda: terminal.fetch()[:1] == ["goodbye"])
    assert terminal.fetch() == ["goodbye", pid]  # it was told, and not replaced
    terminal.deploy("goodbye", replicas=2)
    wait_until(lambda: len({terminal.fetch()[-1] for _ in range(20)}) == 2)
    assert "word: goodbye" in terminal.serve("config")
    wait_until(lambda: "RUNNING: 2" in terminal.serve("status", "--name", "greeting"))
    terminal.serve("shutdown", "-y")
    wait_until(lambda: terminal.fetch() == [])
    assert "No Serve instance found" in terminal.serve("shutdown", "-y")


@full
def test_an_application_runs_until_ctrl_c(terminal: Terminal) -> None:
    command = [*SERVE, "run", "program:app"]
    port = 8000  # of `run`, always
    with subprocess.Popen(command, cwd=terminal.folder, env=terminal.environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        try:
            wait_until(lambda: terminal.fetch(port)[:1] == ["hello"])
            assert "status: RUNNING" in terminal.serve("status")
            run.send_signal(signal.SIGINT)
            run.wait(PATIENCE)
        finally:
            run.kill()
    wait_until(lambda: "applications: {}" in terminal.serve("status"))
    assert terminal.fetch(port) == []
