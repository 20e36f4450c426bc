"""The owner of an object dies: whoever wants the object is told who that was, even before the node has heard of it."""

from __future__ import annotations

import json

import pytest

PROGRAM = """
import os, signal, sys
import mray

mray.init(num_cpus=1, logging_level="ERROR")

@mray.remote(num_cpus=0)
class Owner:
    def make(self, size):
        return os.getpid(), [mray.put(b"x" * size)]

def lose(size):
    owner = Owner.remote()
    pid, (ref,) = mray.get(owner.make.remote(size))
    os.kill(pid, signal.SIGKILL)
    try:
        while True:
            mray.get(ref)
    except mray.exceptions.OwnerDiedError as error:
        print("TOLD", f"pid {pid})" in str(error), " ".join(str(error).split())[-60:], flush=True)

lose(int(sys.argv[1]))
open(sys.argv[2] + ".go", "w").close()
mray.shutdown()
"""


@pytest.mark.parametrize("size", [10, 1_000_000])
def test_the_first_to_hear_of_an_owners_death_can_say_who_it_was(run_text, tmp_path, size):
    """The node is held back between hearing of the death and telling of it."""
    flag = tmp_path / "flag"
    rules = [{"at": "channels closed", "in": "node", "once": str(flag), "do": "wait"}]
    run = run_text(PROGRAM, str(size), str(flag), env={"MRAY_POINTS": json.dumps({"rules": rules})})
    if size > 100_000:
        # Its memory is there until the node takes it away: held back, the node would keep the program waiting for that.
        flag.with_suffix(".go").touch()
    assert run.wait() == 0, run.output()
    assert run.said()["TOLD"].startswith("True"), run.output()
    run.assert_nothing_left()
