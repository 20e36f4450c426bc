"""Objects on disk go with their session, however it ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

#: A driver whose objects, and a worker's, are three times what memory may hold. It says who is who and waits.
DRIVER = """
import os, sys, time
import numpy
import mray

mray.init(num_cpus=2, object_store_memory=80 << 20, object_spilling_directory=os.environ.get("PLACE"))

@mray.remote
def make():
    return numpy.ones(8 << 20, dtype=numpy.uint8)

@mray.remote
class Owner:
    def own(self):
        self.refs = [mray.put(numpy.ones(8 << 20, dtype=numpy.uint8)) for _ in range(5)]
        return os.getpid()

def parent(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rsplit(")", 1)[1].split()[1])

held = [mray.put(numpy.ones(8 << 20, dtype=numpy.uint8)) for _ in range(15)] + [make.remote() for _ in range(10)]
mray.wait(held, num_returns=len(held))
owner = Owner.remote()
worker = mray.get(owner.own.remote())
zygote = parent(worker)
with open(sys.argv[-1] + "/pids", "w") as file:
    file.write(f"{os.getpid()} {worker} {zygote} {parent(zygote)}")
os.rename(sys.argv[-1] + "/pids", sys.argv[-1] + "/reached")
if os.environ.get("END"):
    mray.shutdown()
    sys.exit()
while True:
    time.sleep(1000)
"""

NEXT = "import mray; mray.init(num_cpus=1); mray.shutdown()"


def files(*places: Path) -> list[Path]:
    found = []
    for place in places:
        for folder, _folders, names in os.walk(place):  # which passes over what goes meanwhile
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    found += [path for path in [Path(folder, name)] if path.stat().st_size >= 8 << 20]
    return found


@pytest.mark.parametrize("elsewhere", [False, True], ids=["in the session", "elsewhere"])
def test_the_driver_cleans_after_its_node(run, tmp_path: Path, eventually: Callable[..., None], elsewhere: bool):
    program = tmp_path / "driver.py"
    program.write_text(DRIVER)
    place = tmp_path / "place"
    place.mkdir()
    run.start(program=program, env={"PLACE": str(place) if elsewhere else "", "END": ""})
    driver, _worker, _zygote, node = map(int, run.wait_for("reached").split())
    os.kill(node, signal.SIGKILL)
    eventually(lambda: not files(run.sessions, place) and not list(place.iterdir()))
    eventually(lambda: list(run.processes()) == [driver])


@pytest.mark.parametrize("elsewhere", [False, True], ids=["in the session", "elsewhere"])
@pytest.mark.parametrize("victims", [[], ["driver"], ["node", "driver"], ["driver", "zygote", "node"]], ids=" and ".join)
def test_nothing_on_disk_survives_its_session(run, tmp_path: Path, eventually: Callable[..., None], victims: list[str], elsewhere: bool):
    program = tmp_path / "driver.py"
    program.write_text(DRIVER)
    place = tmp_path / "place"
    place.mkdir()
    run.start(program=program, env={"PLACE": str(place) if elsewhere else "", "END": "" if victims else "1"})
    pids = dict(zip(("driver", "worker", "zygote", "node"), map(int, run.wait_for("reached").split()), strict=True))
    if victims:
        assert len(files(run.sessions, place)) >= 15
        # Stopped first: none of them is to clean after another one.
        for victim in victims:
            os.kill(pids[victim], signal.SIGSTOP)
        for victim in victims:
            os.kill(pids[victim], signal.SIGKILL)
    run.wait()
    if "zygote" in victims:
        # Nobody is left to clean: the next session there does.
        eventually(lambda: not run.processes())
        assert files(run.sessions, place)
        done = subprocess.run([sys.executable, "-c", NEXT], env=dict(os.environ, MRAY_TMPDIR=str(run.sessions)), check=False)
        assert done.returncode == 0
    run.assert_nothing_left()
    assert not list(place.iterdir())
