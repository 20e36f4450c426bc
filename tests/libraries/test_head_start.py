"""Workers have the libraries that the program has imported, from a process that imported them at the same time. Programs of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")
if os.environ.get("MRAY_TEST_ENGINE") == "ray":
    pytest.skip("processes of mray", allow_module_level=True)

BEGIN = """
import contextlib, json, os, sys
from pathlib import Path
import mray.libraries, ray, ray.data
from mray._api.current import current_backend
def children(pid=os.getpid()):
    found, named = [], {}
    for thread in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            found += Path(f"/proc/{pid}/task/{thread}/children").read_text().split()
    for each in found:
        with contextlib.suppress(OSError):
            named[int(each)] = Path(f"/proc/{each}/comm").read_text().strip()
    return named
@ray.remote
def modules():
    return sorted({"ray.data", "pandas"} & set(sys.modules)), os.environ.get("OF_THE_PROGRAM")
def session():
    ray.init(num_cpus=1, logging_level="ERROR", log_to_driver=False)
    node = current_backend().info()["node_pid"]
    (found, own) = ray.get(modules.remote())
    ray.shutdown()
    return [found, own, sorted(children().values()), node]
"""
FULL = ["pandas", "ray.data"]


def run(program: str, **environ: str) -> Any:
    """The JSON that a program prints."""
    own = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"} | environ
    done = subprocess.run([sys.executable, "-c", BEGIN + program], capture_output=True, text=True, check=False, timeout=100, env=own)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_sessions_are_forked_from_it_until_the_program_changes_its_environment() -> None:
    first, second, last = run("""
first = session()
second = session()
os.environ["OF_THE_PROGRAM"] = "1"
last = session()
print(json.dumps([first[:3], second[:3], last[:3]]))
""")
    assert first == second == [FULL, None, ["ray::template"]]
    assert last == [FULL, "1", []]  # imported anew, with the variable, and the process has ended


def test_variables_of_a_task_hold_that_a_library_reads_when_it_is_imported() -> None:
    found = run("""
ray.init(num_cpus=1, logging_level="ERROR", log_to_driver=False)
@ray.remote
def bars():
    return ray.data.context.DEFAULT_ENABLE_PROGRESS_BARS
without = bars.options(runtime_env={"env_vars": {"RAY_DATA_DISABLE_PROGRESS_BARS": "1"}})
print(json.dumps(ray.get([bars.remote(), without.remote()])))
""")
    assert found == [True, False]


def test_one_that_begins_after_another_has_ended_has_what_that_had() -> None:
    core, found = run("""
session()
os.environ["OF_THE_PROGRAM"] = "1"
session()  # by exec: the process has ended
import ray.tune
@ray.remote
def core():
    return str(sys.modules["ray"]), "ray.tune" in sys.modules
ray.init(num_cpus=1, logging_level="ERROR", log_to_driver=False)
print(json.dumps(ray.get(core.remote())))
""")
    assert core == "<module 'ray' (mray)>"
    assert found


def test_there_is_none_where_the_setting_says_so_or_another_engine_is_asked_for() -> None:
    program = "print(json.dumps(list(children().values())))"
    assert run(program, MRAY_HEAD_START="0") == run(program, MRAY_BACKEND="local") == []


def test_packages_count_that_the_program_names_and_not_what_these_import() -> None:
    assert run("""
import ray.tune.integration
print(json.dumps([name for name in os.environ["MRAY_PRELOAD"].split(",") if name.startswith("ray.")]))
""") == ["ray.data", "ray.tune", "ray.tune.integration"]


# ------------------------------------------------------------------------------ imports that a program begins with
RUN = ("-m", "mray", "run", "--libraries")
FIRST = """
from __future__ import annotations
import json, os, sys
from pathlib import Path
from typing import TYPE_CHECKING
import ray
import ray.data
if TYPE_CHECKING:
    import nothing_of_this_name
"""
REST = """
@ray.remote
class ActorWithANameThatIsLongerThanTheCommandOfTheProgram:
    def look(self):
        import threading
        here = sys.modules["ray.data"]
        title = Path("/proc/self/cmdline").read_text().partition(chr(0))[0]
        program = hasattr(sys.modules["__main__"], "ray")
        return [id(here), title, program, sys.argv, len(os.listdir("/proc/self/task")) - threading.active_count()]
if __name__ == "__main__":
    ray.init(num_cpus=1, logging_level="ERROR", log_to_driver=False)
    found = ray.get(ActorWithANameThatIsLongerThanTheCommandOfTheProgram.remote().look.remote())
    ray.shutdown()
    print(json.dumps([id(ray.data), *found]))
"""


def run_program(
    folder: Path, text: str, *flags: str, run: tuple[str, ...] = RUN, without: frozenset[str] = frozenset({"PYTEST_CURRENT_TEST"})
) -> Any:
    """The JSON that a program prints under ``mray run --libraries``, or run otherwise."""
    (folder / "program.py").write_text(text)
    own = {name: value for name, value in os.environ.items() if name not in without}
    command = [sys.executable, *flags, *run, "program.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=100, env=own)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("how", ["mray run", "from inside"])
def test_what_a_program_begins_with_is_imported_once_for_it_and_its_workers(tmp_path: Path, how: str) -> None:
    inside = how == "from inside"
    text = FIRST.replace("import ray\n", "import mray.libraries\nimport ray\n") if inside else FIRST
    drivers, workers, title, *rest = run_program(tmp_path, text + REST, run=() if inside else RUN)
    assert drivers == workers  # the same place in memory: one was forked from the other
    assert title.startswith("ray::ActorWithANameThatIsLongerThanTheCommandOfTheProgram")
    assert rest[:2] == [False, [""]]


@pytest.mark.parametrize("how", ["a statement before", "a file of the program's", "a flag", "too few variables", "from inside a function"])
def test_imports_are_the_programs_own_where_they_could_do_more(tmp_path: Path, how: str) -> None:
    (tmp_path / "tabnanny.py").touch()
    before = {"a statement before": "import os\nos.environ['X'] = 'x'", "a file of the program's": "import tabnanny"}
    text = before.get(how, "") + FIRST.replace("from __future__ import annotations", "") + REST
    if how == "from inside a function":
        text = "def switch():\n    import mray.libraries\nswitch()\n" + text
    flags = ["-Wignore"] if how == "a flag" else []
    few = frozenset({"PYTEST_CURRENT_TEST"})
    if how == "too few variables":
        few = frozenset(os.environ) - {"HOME", "TMPDIR", "MRAY_TMPDIR", "MRAY_KEPT_SESSIONS"}
    drivers, workers, title, *_rest = run_program(tmp_path, text, *flags, run=() if how == "from inside a function" else RUN, without=few)
    assert drivers != workers
    assert title.startswith("ray::ActorWithANameThatIsLongerThanTheCommandOfTheProgram")


def test_it_ends_with_its_driver() -> None:
    own = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    program = BEGIN + "print(json.dumps(list(children())), flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=own) as process:
        assert process.stdout is not None
        (pid,) = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 60
    while _runs(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _runs(pid)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
