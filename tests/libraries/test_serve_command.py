"""``mray serve`` in a session that stays.

Ray's command does the same on a cluster of Ray's; no test asks it, for ``ray stop`` ends every cluster of the machine.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import wait_until
from tests.full import full
from tests.libraries.conftest import PATIENCE, free_port

pytestmark = pytest.mark.skipif(os.environ.get("MRAY_TEST_ENGINE") == "ray", reason="ray stop ends every cluster of the machine")

MRAY = [sys.executable, "-m", "mray"]
SERVE = [*MRAY, "serve"]
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

    def do(self, *command: str) -> str:
        """Standard output and errors of a command that succeeds."""
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=self.folder, env=self.environ, timeout=PATIENCE)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def serve(self, *words: str) -> str:
        return self.do(*SERVE, *words)

    def deploy(self, word: str, replicas: int = 1) -> None:
        (self.folder / "config.yaml").write_text(CONFIG.format(port=self.port, word=word, replicas=replicas))
        self.serve("deploy", "config.yaml")

    def fetch(self, port: int = 0) -> list[str]:
        """The words of the answer; none when there is no answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port or self.port}/", timeout=PATIENCE) as answer:
                return str(answer.read().decode()).split()
        except OSError:
            return []


@pytest.fixture
def terminal(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """With a session that has begun, and ends with the test."""
    (tmp_path / "program.py").write_text(PROGRAM)
    terminal = Terminal(tmp_path, tmp_path_factory.mktemp("t"))
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
