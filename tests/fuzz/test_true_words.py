"""Messages that processes of a session really send fit the schemas that are checked once a handler has failed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mray._common import messages as m
from tests.checkout import python_path

ROOT = Path(__file__).resolve().parents[2]

#: Every process of the session looks at each message that it reads.
LOOKS = """
import marshal, os
import mray._ipc.connection as connection
from mray._common.protocol import misfit

class Looking:
    dumps = marshal.dumps

    def loads(buffer):
        message = marshal.loads(buffer)
        said = misfit(message)
        with open(f"{os.environ['SAID']}/{message[0]}", "a") as file:
            if said:
                file.write(f"{said}\\\\n")
        return message

connection.marshal = Looking
"""


#: Arguments that lie in shared memory.
LARGE = """
import mray as ray, numpy as np
ray.init(num_cpus=2)
large, length = np.ones(1 << 20, np.uint8), ray.remote(lambda value: len(value))

@ray.remote
class Actor:
    def __init__(self, value): self.value = value
    def length(self, value): return len(value)
    async def later(self, value): return len(value)

actor = Actor.remote(large)
asked = [length.remote(large), length.remote(ray.put(large)), actor.length.remote(large), actor.later.remote(large)]
assert ray.get(asked) == [1 << 20] * 4
ray.shutdown()
"""


@pytest.mark.parametrize("program", ["large", "torture"])
def test_everything_that_a_session_says_fits_its_shape(tmp_path: Path, program: str) -> None:
    said, folder = tmp_path / "said", tmp_path / "torture"
    said.mkdir()
    folder.mkdir()
    (folder / "killed").touch()
    (tmp_path / "sitecustomize.py").write_text(LOOKS)
    environ = {**os.environ, "SAID": str(said), "PYTHONPATH": f"{tmp_path}{os.pathsep}{python_path()}"}
    words = {
        "large": ["-c", LARGE],
        "torture": [str(ROOT / "tools" / "torture_work.py"), str(folder), "5", "3", "4"],
    }
    command = [sys.executable, *words[program]]
    done = subprocess.run(command, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    heard = {path.name: path.read_text() for path in said.iterdir()}
    assert {str(code) for code in (m.CALL, m.TASK, m.REPLY)} <= heard.keys()
    assert not {line for lines in heard.values() for line in lines.splitlines()}
