"""The output of workers appears in the driver, on the same stream, and stays in files; off a terminal as it was written."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.api.conftest import program_environment
from tests.checkout import python_path

pytestmark = pytest.mark.processes("what one process prints needs no way to it; tests/engines/local shows that it is printed")

#: Off a terminal mray prints the lines as they were written, unless it is told otherwise.
PREFIX = {"MRAY_LOG_PREFIX": "1"}

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
""",
        env=PREFIX,
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
""",
        env=PREFIX,
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
    assert any(re.search(r"\[repeated \dx( across cluster)?\]", line) and "RAY_DEDUP_LOGS" in line for line in said)  # Ray's has the words


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
    assert "[repeated 3x]" in said[1]
    assert "\x1b[32m [repeated 3x]\x1b[0m" in done.stdout
    done = run_program(program)
    assert "\x1b" not in done.stdout
    assert len([line for line in plain(done.stdout).splitlines() if line.endswith("the same")]) == 4


@pytest.mark.only("mray")
def test_lines_that_differ_in_numbers_alone_are_all_shown_on_a_terminal(run_program, tmp_path):
    (tmp_path / "inner.py").write_text(
        START.replace("ENGINE", "mray")
        + """
ray.init(num_cpus=4, logging_level="ERROR")

@ray.remote
def speak(number):
    print(number)
    print("row", number, "loss", number * 0.5, hex(number))

ray.get([speak.remote(number) for number in range(12)])
"""
    )
    done = run_program("import pty, sys\npty.spawn([sys.executable, 'inner.py'])\n")
    said = sorted(line.split(") ")[-1].strip() for line in plain(done.stdout).splitlines() if "speak pid=" in line)
    assert said == sorted(text for i in range(12) for text in (str(i), f"row {i} loss {i * 0.5} {hex(i)}"))
    assert "repeated" not in done.stdout


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
""",
        env=PREFIX,
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
""",
        env=PREFIX,
    )
    assert re.search(r"\(speaks pid=\d+\) last words", plain(done.stdout))
    assert "crashed" in done.stdout


@pytest.mark.differs("Ray prefixes every line, so that a program that reads the driver's output has to take the prefix off")
def test_off_a_terminal_lines_come_out_as_they_were_written(run_program, engine):
    done = run_program(
        START
        + """
import json

ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR")

@ray.remote
def speaks(number):
    print(json.dumps({"number": number, "text": "carriage return \\r and form feed \\x0c"}))

ray.get([speaks.remote(number) for number in range(20)])
time.sleep(3 if ray.__name__ == "ray" else 0)
""",
    )
    lines = [line for line in done.stdout.split("\n") if "number" in line]
    if engine == "mray":
        assert sorted(json.loads(line)["number"] for line in lines) == list(range(20))
    else:
        assert all("(speaks pid=" in plain(line) for line in lines)


@pytest.mark.only("mray")
def test_on_a_terminal_lines_have_a_prefix_unless_it_is_switched_off(run_program, tmp_path):
    program = (
        START.replace("ENGINE", "mray")
        + """
ray.init(num_cpus=1, logging_level="ERROR")
ray.get(ray.remote(lambda: print("text")).remote())
"""
    )
    (tmp_path / "inner.py").write_text(program)
    outer = "import pty, sys\npty.spawn([sys.executable, 'inner.py'])\n"
    assert re.search(r"\x1b\[36m\(<lambda> pid=\d+\)\x1b\[0m text", run_program(outer).stdout)
    assert re.search(r"^\(<lambda> pid=\d+\) text$", run_program(program, env={"MRAY_LOG_PREFIX": "1"}).stdout, re.MULTILINE)
    assert re.search(r"^text\r?$", run_program(outer, env={"MRAY_LOG_PREFIX": "0"}).stdout, re.MULTILINE)


@pytest.mark.parametrize("end", ["os._exit(1)", "os.kill(os.getpid(), 9)", "os.write(1, b'tail without an end'); os._exit(1)"])
def test_a_last_line_without_an_end_comes_out(run_program, end):
    done = run_program(
        START
        + f"""
ray.init(num_cpus=1, include_dashboard=False, logging_level="ERROR")

@ray.remote(max_retries=0)
def speaks():
    print("whole line")
    print("line without", end=" ", flush=True)
    print("an end", end="", flush=True)
    {end}

try:
    ray.get(speaks.remote())
except ray.exceptions.WorkerCrashedError:
    pass
time.sleep(3 if ray.__name__ == "ray" else 0)
""",
    )
    assert re.search(r"whole line$", plain(done.stdout), re.MULTILINE)
    assert re.search(r"line without an end(tail without an end)?$", plain(done.stdout), re.MULTILINE)


@pytest.mark.only("mray")
def test_a_line_without_an_end_survives_a_kill_between_two_calls(run_program):
    done = run_program(
        START
        + """
ray.init(num_cpus=1, logging_level="ERROR")

@ray.remote
class Speaker:
    def say(self):
        print("not flushed", end="")
        return os.getpid()

speaker = Speaker.remote()
pid = ray.get(speaker.say.remote())
ray.get(speaker.__ray_ready__.remote())
while open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0] != "S":
    time.sleep(0.01)
ray.kill(speaker)
try:
    ray.get(speaker.say.remote())
except ray.exceptions.RayActorError:
    pass
"""
    )
    assert "not flushed" in done.stdout


@pytest.mark.only("mray")
def test_a_driver_that_prints_slowly_holds_up_no_call(run_program):
    done = run_program(
        START
        + """
import threading

class Stopped:
    def __init__(self, stream):
        self.stream, self.go = stream, threading.Event()
    def write(self, text):
        self.go.wait()
        return self.stream.write(text)
    def flush(self):
        self.stream.flush()

ray.init(num_cpus=2, logging_level="ERROR")

@ray.remote
def speaks(number):
    print("line", number, flush=True)
    return number

stopped = sys.stdout = Stopped(sys.stdout)
results = [ray.get(speaks.remote(number)) for number in range(200)]
sys.stderr.write(f"all {len(results)} results\\n")
stopped.go.set()
"""
    )
    assert "all 200 results" in done.stderr
    assert sorted(int(line.split()[1]) for line in done.stdout.splitlines()) == list(range(200))


def test_each_workers_output_is_a_file_of_the_session(fresh, init, eventually):
    ray = fresh
    context = init(num_cpus=1)

    @ray.remote
    class Speaker:
        def say(self):
            print("to stdout", flush=True)
            print("to stderr", file=sys.stderr, flush=True)
            context = ray.get_runtime_context()
            # Between them the job, or on Ray what stands for none.
            return f"worker-{context.get_worker_id()}-*-{os.getpid()}"

    name = ray.get(Speaker.remote().say.remote())
    session = context.address_info["session_dir"]

    def read(suffix):
        return "".join(path.read_text() for path in Path(session, "logs").glob(f"{name}.{suffix}"))

    eventually(lambda: "to stdout" in read("out") and "to stderr" in read("err"))
    assert "to stderr" not in read("out")


def test_the_error_of_a_crashed_actor_has_its_last_lines(fresh, init, engine):
    ray = fresh
    init(num_cpus=1)

    @ray.remote
    class Speaker:
        def say(self, count):
            for number in range(count):
                print("line", number)
            print("the reason, on stderr", file=sys.stderr, flush=True)
            os._exit(3)

    with pytest.raises(ray.exceptions.ActorDiedError) as raised:
        ray.get(Speaker.remote().say.remote(1000))
    if engine == "mray":
        text = str(raised.value)
        assert "Its last output:" in text
        assert "the reason, on stderr" in text
        # The two streams are read one after the other: either may come last, and only the end is shown.
        assert text.count("\n    ") == 40


def test_the_error_of_a_crashed_task_says_where_compiled_code_was(fresh, init, engine):
    ray = fresh
    init(num_cpus=1)

    @ray.remote(max_retries=0)
    def crashes():
        import ctypes

        ctypes.string_at(0)

    with pytest.raises(ray.exceptions.WorkerCrashedError) as raised:
        ray.get(crashes.remote())
    if engine == "mray":
        assert "Segmentation fault" in str(raised.value)
        assert " in crashes" in str(raised.value)
        assert "/_runtime/" not in str(raised.value)


@pytest.mark.only("mray")
def test_a_crash_of_compiled_code_is_shown_in_two_lines_beside_its_error(run_program):
    done = run_program(
        START
        + """
ray.init(num_cpus=1, logging_level="ERROR", log_to_driver=True)

@ray.remote(max_retries=0)
def crashes():
    import ctypes

    ctypes.string_at(0)

try:
    ray.get(crashes.remote())
except ray.exceptions.WorkerCrashedError:
    pass
"""
    )
    first, place = done.stderr.splitlines()
    assert "Fatal Python error: Segmentation fault" in first
    assert place.endswith(" in crashes")


def test_an_actor_that_was_killed_shows_no_output_in_its_error(ray_session):
    ray = ray_session

    @ray.remote
    class Speaker:
        def say(self):
            print("harmless", flush=True)

        def endless(self):
            while True:
                pass

    speaker = Speaker.remote()
    ray.get(speaker.say.remote())
    ref = speaker.endless.remote()
    ray.kill(speaker)
    with pytest.raises(ray.exceptions.ActorDiedError) as raised:
        ray.get(ref)
    assert "harmless" not in str(raised.value)


# ------------------------------------------------------------------------------------------------- logging
def logged(run_program, options, body, env=None):
    return run_program(
        START
        + f"""
import logging

ray.init(num_cpus=1, include_dashboard=False{options})

@ray.remote
def logs():
    {body}

ray.get(logs.remote())
time.sleep(2 if ray.__name__ == "ray" else 0)
""",
        env=env,
    )


def test_workers_log_as_plain_python_does_until_they_configure_more(run_program):
    done = logged(run_program, "", "logging.getLogger('x').info('hidden'); logging.getLogger('x').warning('seen')")
    assert "seen" in plain(done.stderr)
    assert "hidden" not in done.stderr
    done = logged(run_program, "", "logging.basicConfig(level='INFO', format='%(levelname)s|%(message)s'); logging.info('told')")
    assert "INFO|told" in plain(done.stderr)


def test_a_json_configuration_holds_in_driver_and_workers(run_program):
    done = logged(
        run_program,
        ", logging_config=ray.LoggingConfig(encoding='JSON', log_level='DEBUG', additional_log_standard_attrs=['name'])",
        "logging.getLogger('mine').debug('from %s', 'a worker', extra={'answer': 42})",
    )
    (line,) = [line for line in plain(done.stderr).splitlines() if "from a worker" in line]
    record = json.loads(line[line.index("{") :])
    assert {"message": "from a worker", "levelname": "DEBUG", "name": "mine", "answer": 42, "job_id": "01000000"}.items() <= record.items()
    assert {"asctime", "filename", "lineno", "process", "worker_id", "node_id", "task_id", "task_name", "task_func_name"} <= record.keys()
    assert record["task_name"] == "logs"
    assert record["task_func_name"].endswith(".logs")


def test_a_text_configuration_adds_who_logs(run_program):
    done = logged(run_program, ", logging_config=ray.LoggingConfig()", "logging.getLogger('mine').info('told')")
    (line,) = [line for line in plain(done.stderr).splitlines() if "told" in line]
    assert re.search(r"INFO program\.py:\d+ -- told .*task_name=logs", line)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"encoding": "XML"}, "Invalid encoding type: XML"),
        ({"additional_log_standard_attrs": ["nonsense"]}, "Unknown python logging standard attribute"),
    ],
)
def test_a_configuration_that_cannot_be_is_refused(ray, wrong, text):
    with pytest.raises(ValueError, match=text):
        ray.LoggingConfig(**wrong)


@pytest.mark.only("mray")
def test_a_driver_that_goes_away_while_workers_print_leaves_nothing(tmp_path):
    (tmp_path / "inner.py").write_text(
        START.replace("ENGINE", "mray")
        + """
ray.init(num_cpus=2, logging_level="ERROR")

@ray.remote
def speaks():
    while True:
        print("x" * 100)

refs = [speaks.remote() for _ in range(2)]
sys.stdout.write("started\\n")
sys.stdout.flush()
ray.get(refs)
"""
    )
    environment = {**os.environ, "PYTHONPATH": python_path()}
    child = subprocess.Popen([sys.executable, "inner.py"], cwd=tmp_path, stdout=subprocess.PIPE, env=environment)
    with child:
        assert child.stdout is not None
        line = b"first"
        while line and b"xxx" not in line:
            line = child.stdout.readline()
        child.kill()
    assert line


# ------------------------------------------------------------------------------------- requests that wait in vain
@pytest.mark.only("mray")
@pytest.mark.parametrize(("seconds", "times"), [("0.1", 1), ("0", 0)])
def test_a_request_that_waits_for_what_actors_hold_is_told_once(run_program, seconds, times):
    done = run_program(
        """
        import ENGINE, time

        ENGINE.init(num_cpus=2)

        @ENGINE.remote(num_cpus=1)
        class Counter:
            def f(self):
                return 1

        actors = [Counter.remote() for _ in range(3)]
        ENGINE.get([actor.f.remote() for actor in actors[:2]])
        late = actors[2].f.remote()
        time.sleep(1)
        ENGINE.kill(actors[0])
        assert ENGINE.get(late) == 1
        """,
        env={"MRAY_WARN_WAITING": seconds},
    )
    text = "actor Counter cannot be scheduled right now: it asks for {'CPU': 1.0}, 0 of 2 CPU are free, and none is released until these"
    assert done.stderr.count(text) == done.stderr.count("cannot be scheduled right now") == times
    assert done.stderr.count("MRAY_WARN_WAITING=0 disables this message") == times


@pytest.mark.only("mray")
def test_tasks_that_wait_for_tasks_are_not_told_of(run_program):
    done = run_program(
        """
        import ENGINE, time

        ENGINE.init(num_cpus=1)

        @ENGINE.remote
        def work(_):
            time.sleep(0.3)

        ENGINE.get([work.remote(number) for number in range(4)])
        """,
        env={"MRAY_WARN_WAITING": "0.05"},
    )
    assert "cannot be scheduled" not in done.stderr


@pytest.mark.parametrize("prefix", [False, True])
def test_text_without_a_line_end_is_shown_while_its_task_runs(tmp_path, engine, prefix):
    program = (
        START
        + """
ray.init(num_cpus=1, include_dashboard=False, logging_level="ERROR")

@ray.remote
def works(folder):
    for number in range(3):
        print(f"<{number}\\u00e9>", end=" ", flush=True)
        while not os.path.exists(os.path.join(folder, str(number))):
            time.sleep(0.01)
    print("done", flush=True)

ray.get(works.remote(sys.argv[1]))
time.sleep(2 if ray.__name__ == "ray" else 0)
"""
    )
    path = tmp_path / "program.py"
    path.write_text(program.replace("ENGINE", "ray" if engine == "ray" else "mray"))
    environment = program_environment({**PREFIX} if prefix else {})
    with subprocess.Popen(
        [sys.executable, str(path), str(tmp_path)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=environment
    ) as running:
        assert running.stdout is not None
        shown = b""
        for number in range(3):
            while f"<{number}é>".encode() not in shown:
                more = os.read(running.stdout.fileno(), 4096)
                assert more, shown
                shown += more
            (tmp_path / str(number)).touch()
        shown += running.stdout.read()
    assert running.returncode == 0
    said = plain(shown.decode())
    if prefix or engine == "ray":
        assert [line.partition(") ")[2].rstrip() for line in lines_of(said, "(works pid=")] == ["<0é>", "<1é>", "<2é>", "done"]
    else:
        assert said == "<0é> <1é> <2é> done\n"
