"""Remote variables in programs: under their old name, in notebooks, and in sessions that stay."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mray.proxy import RemoteInterpreterFactory, load_ipython_extension
from tests.checkout import python_path


def run(*words: str, env: dict[str, str] | None = None) -> str:
    """The output of a Python program."""
    environment = {**os.environ, "PYTHONPATH": python_path(), **(env or {})}
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, env=environment, check=False, cwd="/")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.only("mray", "local")  # `mray run` is mray's
def test_a_program_for_ray_proxy_runs_unchanged(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        """
import ray
from ray_proxy import RemoteInterpreterFactory, IRemoteInterpreter, Var

ray.init(num_cpus=1)
env: IRemoteInterpreter = RemoteInterpreterFactory(ray).create(num_cpus=1)
x = env.put("x")
assert isinstance(x, Var)

@ray.remote(num_cpus=0)
def use(v):
    import ray_proxy
    assert isinstance(v, ray_proxy.Var)
    return (v * 3).fetch()

print(ray.get(use.remote(x)), env.run(lambda: __import__("ray_proxy").__name__).fetch())
"""
    )
    assert run("-m", "mray", "run", str(program)) == "xxx ray_proxy"


def test_a_cell_runs_at_the_interpreter_that_it_names(ray_session: ModuleType) -> None:
    env = RemoteInterpreterFactory(ray_session).create(num_cpus=0)

    class Shell:
        """The part of IPython's shell that the magic uses."""

        user_ns: dict[str, Any] = {"env": env}  # noqa: RUF012

        def register_magic_function(self, function: Any, magic_kind: str, magic_name: str) -> None:
            assert (magic_kind, magic_name) == ("cell", "remote")
            self.remote = function

    shell = Shell()
    load_ipython_extension(shell)
    assert shell.remote("env", "x = 3\nx + 1").fetch() == 4
    assert shell.remote(" env ", "x += 1\ndef double():\n    return 2 * x\n") is None
    assert env["double"]().fetch() == 8
    with pytest.raises(NameError, match="'nowhere' is none"):
        shell.remote("nowhere", "1")
    shell.user_ns.clear()


@pytest.mark.processes("several programs share a session")
@pytest.mark.only("mray")
def test_a_detached_interpreter_keeps_its_variables_from_program_to_program() -> None:
    begin = """
import mray as ray
from mray.proxy import RemoteInterpreterFactory

ray.init(address="auto", namespace="models")
rif = RemoteInterpreterFactory(ray)
env = rif.get_or_create("model", lifetime="detached", num_cpus=0)
"""
    # A folder of its own: the user may have a session.
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="p") as folder:
        own = {"MRAY_TMPDIR": folder, "TMPDIR": folder}
        run("-m", "mray", "start", "--num-cpus", "2", env=own)
        try:
            make = "env['weights'] = [1, 2]\nlost = env.put('lost')\nenv['weights'].append(3)\nprint(env.status()['pid'])"
            first = run("-c", begin + make, env=own)
            use = "print(env.status()['pid'], 'weights' in env, env['weights'].fetch())\nenv['weights'][0] = 10"
            again = run("-c", begin + use, env=own)
            last = run("-c", begin + "print(env['weights'].fetch(), env.status()['names'])\nrif.destroy('model')", env=own)
        finally:
            run("-m", "mray", "stop", env=own)
    assert again == f"{first} True [1, 2, 3]"
    assert last == "[10, 2, 3] ['weights']"


@pytest.mark.only("mray", "local")  # starts sessions of its own
def test_a_program_does_not_wait_for_interpreters_that_it_has_ended() -> None:
    program = """
import mray
from mray.proxy import RemoteInterpreterFactory

mray.init(num_cpus=1, logging_level="ERROR")
old = RemoteInterpreterFactory(mray).create(num_cpus=0)
of_old = old.put(1)
mray.shutdown()
mray.init(num_cpus=1, logging_level="ERROR")
env = RemoteInterpreterFactory(mray).create(num_cpus=0)
x = env.put(1)
env.destroy()
"""
    environment = {**os.environ, "PYTHONPATH": python_path()}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=False, cwd="/")
    assert (done.returncode, done.stderr) == (0, "")
