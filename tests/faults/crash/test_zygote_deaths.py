"""The zygote dies before it has told of a worker, which lives on, or is late when the node is dead and it should clean."""

from __future__ import annotations

import json
import signal

PROGRAM = """
import os, signal, sys
import mray

mray.init(num_cpus=1, logging_level="ERROR")

@mray.remote(num_cpus=0)
class A:
    def make(self):
        return os.getpid(), [mray.put(b"x" * 10)]

a = A.remote()
pid, (ref,) = mray.get(a.make.remote())
zygote = int(open(sys.argv[1]).read().split()[0])
os.kill(zygote, signal.SIGKILL)
b = A.remote()  # forked by the next zygote
print("OTHER", mray.get(b.make.remote())[0] != pid, flush=True)
print("OBJECT", mray.get(ref) == b"x" * 10, flush=True)
print("SAME", mray.get(a.make.remote())[0] == pid, flush=True)
mray.shutdown()
"""


def test_a_worker_that_has_joined_outlives_a_zygote_that_has_not_reported_it(run_text, tmp_path):
    flag = tmp_path / "flag"
    rules = [{"at": "worker forked", "in": "zygote", "once": str(flag), "do": "wait"}]
    run = run_text(PROGRAM, str(flag), env={"MRAY_POINTS": json.dumps({"rules": rules})})
    assert run.wait() == 0, run.output()
    assert run.said() == {"OTHER": "True", "OBJECT": "True", "SAME": "True"}, run.output()
    run.assert_nothing_left()


CLEANS = """
import os, signal
import mray
from mray._api.current import current_backend

mray.init(num_cpus=1, logging_level="ERROR")

@mray.remote
class A:
    def pid(self):
        return os.getpid()

a = A.remote()
mray.get(a.pid.remote())
os.kill(current_backend().client.info["node_pid"], signal.SIGKILL)
mray.get(a.pid.remote(), timeout=60)
"""


def test_a_driver_that_dies_as_it_cleans_after_its_node_has_left_the_zygote_to_do_so(run_text):
    rules = [
        {"at": "session ended", "in": "zygote", "do": "delay", "seconds": 0.4},
        {"at": "session ended", "in": "driver", "do": "SIGKILL"},
    ]
    run = run_text(CLEANS, env={"MRAY_POINTS": json.dumps({"rules": rules})})
    assert run.wait() == -signal.SIGKILL, run.output()
    run.assert_nothing_left()
