"""Modules that the processes of a running session have loaded."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import os
import numpy as np
import mray

@mray.remote
class Owner:
    def keep(self, array):
        self.array = array
        return os.getpid()

def descendants(pid):
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            parent = int(open(f"/proc/{entry}/stat").read().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == pid:
            found += [int(entry), *descendants(int(entry))]
    return found

mray.init(num_cpus=1)
owner = Owner.remote()
worker = mray.get(owner.keep.remote(np.zeros(1_000_000)))
children = descendants(os.getpid())
assert worker in children and len(children) >= 3, children
loaded = {pid for pid in children if "numpy" in open(f"/proc/{pid}/maps").read()}
assert loaded == {worker}, (loaded, worker, children)
"""


def test_only_workers_load_numpy() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
