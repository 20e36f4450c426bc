"""What workers print comes out of the driver, on the same stream, with a prefix."""

from __future__ import annotations

import re

import pytest

START = """
import os
import sys
import time
import ENGINE as ray

"""


def plain(text):
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def lines_of(text, prefix):
    return [line for line in plain(text).splitlines() if line.startswith(prefix)]


def test_prints_of_tasks_and_actors_come_out_with_a_prefix(run_program):
    done = run_program(
        START
        + """
ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR")

@ray.remote
def speaks():
    print("from a task", flush=True)
    print("to stderr", file=sys.stderr, flush=True)
    return os.getpid()

@ray.remote
class Speaker:
    def __init__(self):
        print("from the constructor", flush=True)
    def say(self):
        print("from an actor", flush=True)
        return os.getpid()

@ray.remote
class Named:
    def __repr__(self):
        return "Renamed"
    def say(self):
        print("from a renamed actor", flush=True)

task = ray.get(speaks.remote())
actor = Speaker.remote()
pid = ray.get(actor.say.remote())
named = Named.remote()
ray.get(named.say.remote())
# One write: a line of a worker may come in between a printed line and its end.
sys.stdout.write(f"\\nPIDS {task} {pid}\\n")
sys.stdout.flush()
time.sleep(2 if ray.__name__ == "ray" else 0)
"""
    )
    _, task, actor = lines_of(done.stdout, "PIDS")[0].split()
    assert f"(speaks pid={task}) from a task" in plain(done.stdout)
    assert f"(speaks pid={task}) to stderr" in plain(done.stderr)
    assert f"(Speaker pid={actor}) from an actor" in plain(done.stdout)
    assert f"(Speaker pid={actor}) from the constructor" in plain(done.stdout)
    assert re.search(r"\(Renamed pid=\d+\) from a renamed actor", plain(done.stdout))
    assert "to stderr" not in done.stdout


def test_output_written_to_the_descriptor_and_by_children_comes_out_too(run_program):
    done = run_program(
        START
        + """
ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR")

@ray.remote
def speaks():
    import subprocess
    os.write(1, b"raw bytes\\n")
    subprocess.run(["echo", "from a child"], check=True)

ray.get(speaks.remote())
time.sleep(2 if ray.__name__ == "ray" else 0)
"""
    )
    assert re.search(r"\(speaks pid=\d+\) raw bytes", plain(done.stdout))
    assert re.search(r"\(speaks pid=\d+\) from a child", plain(done.stdout))


def test_without_log_to_driver_workers_are_silent(run_program):
    done = run_program(
        START
        + """
ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)

@ray.remote
def speaks():
    print("unheard", flush=True)

ray.get(speaks.remote())
time.sleep(1 if ray.__name__ == "ray" else 0)
print("done")
"""
    )
    assert "unheard" not in done.stdout + done.stderr
    assert "done" in done.stdout


def test_equal_lines_of_several_workers_are_folded(run_program):
    done = run_program(
        START
        + """
ray.init(num_cpus=4, include_dashboard=False, logging_level="ERROR")

@ray.remote
class Speaker:
    def say(self):
        print("the same", flush=True)

speakers = [Speaker.remote() for _ in range(4)]
ray.get([speaker.say.remote() for speaker in speakers])
time.sleep(8 if ray.__name__ == "ray" else 0)
""",
        env={"RAY_DEDUP_LOGS": "1"},  # mray folds lines by itself only on a terminal
    )
    said = [line for line in plain(done.stdout).splitlines() if "the same" in line]
    assert len(said) < 4
    assert any("x across cluster]" in line and "RAY_DEDUP_LOGS" in line for line in said)


@pytest.mark.only("mray")
def test_equal_lines_are_folded_on_a_terminal_and_printed_one_by_one_elsewhere(run_program, tmp_path):
    program = (
        START.replace("ENGINE", "mray")
        + """
ray.init(num_cpus=4, logging_level="ERROR")

@ray.remote
class Speaker:
    def say(self):
        print("the same", flush=True)

speakers = [Speaker.remote() for _ in range(4)]
ray.get([speaker.say.remote() for speaker in speakers])
"""
    )
    (tmp_path / "inner.py").write_text(program)
    done = run_program("import pty, sys\npty.spawn([sys.executable, 'inner.py'])\n")
    said = [line for line in plain(done.stdout).splitlines() if "the same" in line]
    assert len(said) == 2
    assert "[repeated 3x across cluster]" in said[1]
    done = run_program(program)
    assert len([line for line in plain(done.stdout).splitlines() if line.endswith("the same")]) == 4


def test_equal_lines_are_all_printed_on_request(run_program):
    done = run_program(
        START
        + """
ray.init(num_cpus=4, include_dashboard=False, logging_level="ERROR")

@ray.remote
class Speaker:
    def say(self):
        print("the same", flush=True)

speakers = [Speaker.remote() for _ in range(4)]
ray.get([speaker.say.remote() for speaker in speakers])
time.sleep(3 if ray.__name__ == "ray" else 0)
""",
        env={"RAY_DEDUP_LOGS": "0"},
    )
    assert len([line for line in plain(done.stdout).splitlines() if line.endswith("the same")]) == 4


def test_many_lines_come_out_whole_and_in_order(run_program):
    done = run_program(
        START
        + """
ray.init(num_cpus=1, include_dashboard=False, logging_level="ERROR")

@ray.remote
def speaks():
    for i in range(2000):
        print(f"line {i:05} " + "x" * 50)

ray.get(speaks.remote())
time.sleep(3 if ray.__name__ == "ray" else 0)
"""
    )
    numbers = [int(match) for match in re.findall(r"\(speaks pid=\d+\) line (\d+) x{50}$", plain(done.stdout), re.MULTILINE)]
    assert numbers == list(range(2000))


def test_the_last_words_of_a_crashing_worker_come_out(run_program):
    done = run_program(
        START
        + """
ray.init(num_cpus=1, include_dashboard=False, logging_level="ERROR")

@ray.remote(max_retries=0)
def speaks():
    print("last words", flush=True)
    os._exit(1)

try:
    ray.get(speaks.remote())
except ray.exceptions.WorkerCrashedError:
    print("crashed", flush=True)
time.sleep(2 if ray.__name__ == "ray" else 0)
"""
    )
    assert re.search(r"\(speaks pid=\d+\) last words", plain(done.stdout))
    assert "crashed" in done.stdout
