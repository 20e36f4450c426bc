"""Nothing is left of a session with Ray Serve, whichever of its processes is killed; it serves on unless that is the driver."""

from __future__ import annotations

import json
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("fastapi")

from tests.conftest import wait_until
from tests.faults.crash.conftest import Run
from tests.full import full
from tests.libraries.conftest import PATIENCE, free_port

pytestmark = pytest.mark.skipif(os.environ.get("MRAY_TEST_ENGINE") == "ray", reason="about what mray leaves")

PROGRAM = """
import json, os, sys, time
import mray.libraries
import ray
from ray import serve
from ray.util.state import list_actors

port, folder = int(sys.argv[1]), sys.argv[-1]
ray.init(num_cpus=4, log_to_driver=False, logging_level="ERROR")
serve.start(http_options={"port": port})

@serve.deployment
class Hello:
    def __call__(self, request):
        return str(os.getpid())

serve.run(Hello.bind())
found = {actor.name or "": actor.pid for actor in list_actors(filters=[("state", "=", "ALIVE")])}
pids = {"driver": os.getpid()}
for word in ("CONTROLLER", "PROXY", "REPLICA"):
    pids[word.lower()] = next(pid for name, pid in found.items() if word in name)
with open(folder + "/part", "w") as file:
    json.dump(pids, file)
os.rename(folder + "/part", folder + "/pids")
while not os.path.exists(folder + "/end"):
    time.sleep(0.05)
serve.shutdown()
ray.shutdown()
"""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    run = Run(tmp_path)
    yield run
    run.close()


@full
@pytest.mark.parametrize("victim", ["driver", "controller", "proxy", "replica"])
def test_nothing_is_left(run: Run, tmp_path: Path, victim: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    port = free_port()

    def fetch() -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=PATIENCE) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    run.start(str(port), program=program)
    pids = json.loads(run.wait_for("pids"))
    assert fetch() == str(pids["replica"])
    os.kill(pids[victim], signal.SIGKILL)
    if victim != "driver":
        replica = str(pids["replica"])
        wait_until(lambda: (fetch() not in ("", replica)) if victim == "replica" else fetch() == replica)
        run.tell("end")
    assert run.wait() == (-signal.SIGKILL if victim == "driver" else 0), run.output()
    run.assert_nothing_left()
