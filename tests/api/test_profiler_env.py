"""`runtime_env={"nsight": ...}` and `{"profiler": ...}`: workers under a profiler, whose part a small program plays."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.only("mray")

#: Runs what stands behind ``-o file`` (nsys) or ``--out file --`` as a child of a child, and writes its report when that has ended.
STAND_IN = """\
#!{python}
import json, os, signal, subprocess, sys, time

words = sys.argv[1:]
at = next(index for index, word in enumerate(words) if word in ("-o", "--out"))
own, out, command = words[:at], words[at + 1], words[at + 2:]
if "--refuse=yes" in own:
    sys.exit("unrecognised option '--refuse'")
# Descriptors that a profiler has open, and closes in its child.
os.closerange(3, 64)
child = subprocess.Popen(command, start_new_session=True, env={{**os.environ, "INJECTED": "by the profiler"}})
print("profiler", os.getpid(), "runs", child.pid, flush=True)
code = child.wait()
if "--endless=yes" in own:
    print("profiler goes on", flush=True)
    while True:
        time.sleep(1000)
if "--chatty=yes" in own:
    print("x" * 1000000)
with open(out.replace("%p", str(child.pid)) + ".report", "w") as file:
    json.dump({{"own": own, "program": command[0], "code": code}}, file)
sys.exit(128 - code if code < 0 else code)
"""


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Folder of a program ``nsys`` that is first on PATH."""
    folder = tmp_path / "programs"
    folder.mkdir()
    program = folder / "nsys"
    program.write_text(STAND_IN.format(python=sys.executable))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return program


@pytest.fixture
def Worker(ray):
    class Worker:
        def info(self):
            return {"pid": os.getpid(), "parent": os.getppid(), "injected": os.environ.get("INJECTED")}

        def variables(self):
            return dict(os.environ)

        def exit(self, code):
            os._exit(code)

        def crash(self):
            os.kill(os.getpid(), 11)

        def leave(self):
            ray.actor.exit_actor()

        def endless(self):
            while True:
                pass

    return ray.remote(Worker)


def reports(context, folder="nsight"):
    """The files that the stand-in has written so far, by the pid in the name."""
    path = Path(context["session_dir"], "logs", folder)
    found = {}
    for file in path.glob("*.report") if path.exists() else ():
        try:
            found[int(file.name.removesuffix(".report").rpartition("_")[2])] = json.loads(file.read_text())
        except ValueError:  # just being written
            continue
    return found


def kept(context):
    """Where the profiles of a session that has ended lie."""
    directory = Path(context["session_dir"])
    return directory.parent / "profiles" / directory.name.removeprefix("session_")


def node_pid():
    from mray._api.current import current_backend

    return current_backend()._session.node_pid


# ------------------------------------------------------------------------------------------------ start
def test_the_worker_runs_under_nsys_with_rays_options(stand_in, fresh, init, eventually, Worker):
    context = init(num_cpus=1)
    actor = Worker.options(runtime_env={"nsight": "default"}).remote()
    info = fresh.get(actor.info.remote())
    assert info["injected"] == "by the profiler"
    command = Path(f"/proc/{info['parent']}/cmdline").read_bytes().split(b"\0")
    output = f"{context['session_dir']}/logs/nsight/worker_process_%p"
    options = ["profile", "-t", "cuda,cudnn,cublas,nvtx", "--stop-on-exit=true", "-o", output]
    assert [part.decode() for part in command[1:8]] == [str(stand_in), *options]
    assert command[8] == sys.executable.encode()
    fresh.get(actor.info.remote())
    del actor
    eventually(lambda: info["pid"] in reports(context))
    assert reports(context)[info["pid"]]["code"] == 0


def test_options_and_the_files_name_are_the_users(stand_in, fresh, init, eventually, Worker, tmp_path):
    context = init(num_cpus=1)
    options = {"t": "cuda", "cuda-memory-usage": "true", "o": "mine_%p"}
    info = fresh.get(Worker.options(runtime_env={"nsight": options}).remote().info.remote())
    eventually(lambda: info["pid"] in reports(context))
    assert reports(context)[info["pid"]]["own"] == ["profile", "-t", "cuda", "--cuda-memory-usage=true"]
    assert Path(context["session_dir"], "logs", "nsight", f"mine_{info['pid']}.report").exists()
    info = fresh.get(Worker.options(runtime_env={"nsight": {"output": f"{tmp_path}/elsewhere_%p"}}).remote().info.remote())
    eventually(lambda: (tmp_path / f"elsewhere_{info['pid']}.report").exists())


def test_nothing_of_ours_is_left_among_the_variables_of_user_code(stand_in, fresh, init, Worker):
    init(num_cpus=1)
    environment = {"nsight": "default", "env_vars": {"MINE": "1"}}
    variables = fresh.get(Worker.options(runtime_env=environment).remote().variables.remote())
    assert variables["MINE"] == "1"
    assert {name for name in variables if name.startswith("MRAY_WORKER_")} == {"MRAY_WORKER_PROCESS"}


def test_a_runtime_env_object_takes_nsight_by_rays_names(stand_in, fresh, init, Worker):
    init(num_cpus=1)
    environment = fresh.runtime_env.RuntimeEnv(nsight="default")
    assert environment.nsight() == "default"
    assert environment["_nsight"] == "default"
    assert fresh.get(Worker.options(runtime_env=environment).remote().info.remote())["injected"]
    assert fresh.get(Worker.options(runtime_env={"_nsight": "default"}).remote().info.remote())["injected"]


def test_tasks_run_under_a_profiler_too_and_others_do_not(stand_in, fresh, init):
    init(num_cpus=2)

    @fresh.remote
    def injected():
        return os.environ.get("INJECTED")

    assert fresh.get(injected.options(runtime_env={"nsight": "default"}).remote()) == "by the profiler"
    assert fresh.get(injected.remote()) is None


def test_a_profiled_worker_serves_calls_arrays_and_children(stand_in, fresh, init):
    np = pytest.importorskip("numpy")
    init(num_cpus=2)

    @fresh.remote(runtime_env={"nsight": "default"})
    class Sums:
        def sum(self, array):
            return float(array.sum())

        def child(self):
            @fresh.remote(runtime_env={"nsight": None})
            def f():
                return 7

            return fresh.get(f.remote())

    sums = Sums.remote()
    assert fresh.get(sums.sum.remote(fresh.put(np.ones(1 << 20)))) == float(1 << 20)
    assert fresh.get(sums.child.remote()) == 7


# ------------------------------------------------------------------------------------------- what is wrong
def test_without_nsys_the_creation_says_so(fresh, init, Worker, monkeypatch, tmp_path):
    init(num_cpus=1)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(fresh.exceptions.RuntimeEnvSetupError, match=r"nsight profile failed to run[\s\S]*nsight is not installed"):
        Worker.options(runtime_env={"nsight": "default"}).remote()


@pytest.mark.parametrize(
    ("environment", "text"),
    [
        ({"nsight": "fast"}, "Unsupported nsight config: fast"),
        ({"profiler": "gprof"}, "Unsupported profiler: gprof"),
        ({"profiler": ["no-such-program"]}, "no-such-program is not installed"),
        ({"nsight": "default", "profiler": "py-spy"}, "one profiler"),
    ],
)
def test_what_cannot_be_is_refused_at_once(stand_in, fresh, init, Worker, environment, text):
    init(num_cpus=1)
    with pytest.raises(fresh.exceptions.RuntimeEnvSetupError, match=text):
        Worker.options(runtime_env=environment).remote()
    with pytest.raises(TypeError, match="runtime_env"):
        Worker.options(runtime_env={"profiler": 7}).remote()


def test_a_profiler_that_refuses_its_options_is_quoted(stand_in, fresh, init, Worker):
    init(num_cpus=1)
    actor = Worker.options(runtime_env={"nsight": {"refuse": "yes"}}).remote()
    with pytest.raises(fresh.exceptions.RuntimeEnvSetupError, match="unrecognised option '--refuse'"):
        fresh.get(actor.info.remote())

    @fresh.remote(max_retries=0, runtime_env={"nsight": {"refuse": "yes"}})
    def f():
        pass

    with pytest.raises(fresh.exceptions.RuntimeEnvSetupError, match="unrecognised option '--refuse'"):
        fresh.get(f.remote())


# ------------------------------------------------------------------------------------------------- ends
@pytest.mark.parametrize(("method", "status"), [("crash", -11), ("exit", 3)])
def test_a_death_is_told_with_its_status_and_the_report_is_written(stand_in, fresh, init, eventually, Worker, method, status):
    context = init(num_cpus=1)
    actor = Worker.options(runtime_env={"nsight": "default"}).remote()
    pid = fresh.get(actor.info.remote())["pid"]
    with pytest.raises(fresh.exceptions.ActorDiedError) as raised:
        fresh.get(getattr(actor, method).remote(*([3] if method == "exit" else [])))
    assert raised.value.pid == pid
    assert raised.value.status == status
    eventually(lambda: pid in reports(context))
    assert reports(context)[pid]["code"] == status


def test_a_killed_actor_is_dead_at_once_and_its_profiler_writes(stand_in, fresh, init, eventually, Worker):
    context = init(num_cpus=1)
    actor = Worker.options(runtime_env={"nsight": {"chatty": "yes"}}).remote()
    pid = fresh.get(actor.info.remote())["pid"]
    ref = actor.endless.remote()
    fresh.kill(actor)
    with pytest.raises(fresh.exceptions.ActorDiedError, match=r"killed by `ray.kill`"):
        fresh.get(ref)
    eventually(lambda: pid in reports(context))
    assert reports(context)[pid]["code"] == -9


def test_an_actor_that_exits_lets_its_profiler_write(stand_in, fresh, init, eventually, Worker):
    context = init(num_cpus=1)
    actor = Worker.options(runtime_env={"nsight": "default"}).remote()
    pid = fresh.get(actor.info.remote())["pid"]
    with pytest.raises(fresh.exceptions.ActorDiedError, match=r"exit_actor"):
        fresh.get(actor.leave.remote())
    eventually(lambda: pid in reports(context))


def test_an_actor_under_a_profiler_is_restarted_under_it(stand_in, fresh, init, eventually, Worker):
    context = init(num_cpus=1)
    actor = Worker.options(runtime_env={"nsight": "default"}, max_restarts=1, max_task_retries=1).remote()
    first = fresh.get(actor.info.remote())
    os.kill(first["pid"], 9)
    eventually(lambda: first["pid"] in reports(context))
    second = fresh.get(actor.info.remote())
    assert second["pid"] != first["pid"]
    assert second["injected"] == "by the profiler"


def test_a_profiler_that_dies_takes_its_worker_along(stand_in, fresh, init, eventually, Worker):
    init(num_cpus=1)
    actor = Worker.options(runtime_env={"nsight": "default"}).remote()
    info = fresh.get(actor.info.remote())
    ref = actor.endless.remote()
    os.kill(info["parent"], 9)
    with pytest.raises(fresh.exceptions.ActorDiedError):
        fresh.get(ref)
    eventually(lambda: not Path(f"/proc/{info['pid']}").exists())


def test_a_profiler_that_does_not_end_is_ended(stand_in, fresh, init, eventually, Worker, monkeypatch):
    monkeypatch.setenv("MRAY_PROFILER_TIMEOUT", "0.3")
    init(num_cpus=1)
    actor = Worker.options(runtime_env={"nsight": {"endless": "yes"}}).remote()
    info = fresh.get(actor.info.remote())
    fresh.kill(actor)
    eventually(lambda: not Path(f"/proc/{info['parent']}").exists())


def test_a_profiler_that_does_not_end_holds_no_session(stand_in, fresh, init, Worker, monkeypatch):
    monkeypatch.setenv("MRAY_PROFILER_TIMEOUT", "0.3")
    init(num_cpus=1)
    actor = Worker.options(runtime_env={"nsight": {"endless": "yes"}}).remote()
    info = fresh.get(actor.info.remote())
    fresh.shutdown()
    assert not Path(f"/proc/{info['parent']}").exists()
    assert not Path(f"/proc/{info['pid']}").exists()


def test_the_end_of_the_session_waits_for_reports_and_keeps_them(stand_in, fresh, init, Worker, capfd):
    context = init(num_cpus=2)
    workers = [Worker.options(runtime_env={"nsight": {"chatty": "yes"}}).remote() for _ in range(2)]
    pids = {fresh.get(worker.info.remote())["pid"] for worker in workers}
    fresh.shutdown()
    found = {int(file.stem.rpartition("_")[2]): json.loads(file.read_text()) for file in (kept(context) / "nsight").glob("*.report")}
    assert found.keys() == pids
    assert {report["code"] for report in found.values()} == {-9}
    assert f"the profiles of this session are in {kept(context)}" in capfd.readouterr().err
    assert stat.S_IMODE(kept(context).stat().st_mode) == 0o700
    assert not Path(context["session_dir"]).exists()


def test_the_death_of_the_node_ends_worker_and_profiler(stand_in, fresh, init, eventually, Worker):
    init(num_cpus=1)
    info = fresh.get(Worker.options(runtime_env={"nsight": {"endless": "yes"}}).remote().info.remote())
    node = node_pid()
    os.kill(node, 9)
    eventually(lambda: not Path(f"/proc/{info['pid']}").exists())
    eventually(lambda: not Path(f"/proc/{info['parent']}").exists())


def test_the_death_of_the_zygote_leaves_profiled_workers_alone(stand_in, fresh, init, eventually, Worker):
    init(num_cpus=2)
    actor = Worker.options(runtime_env={"nsight": "default"}).remote()
    info = fresh.get(actor.info.remote())
    node = node_pid()
    children = Path(f"/proc/{node}/task/{node}/children").read_text().split()
    (zygote,) = [pid for pid in map(int, children) if Path(f"/proc/{pid}/cmdline").read_text().startswith("ray::zygote")]
    os.kill(zygote, 9)
    assert fresh.get(fresh.remote(lambda: 1).options(runtime_env={"env_vars": {"NEW": "1"}}).remote()) == 1
    assert fresh.get(actor.info.remote()) == info


# ------------------------------------------------------------------------------------------ other profilers
def test_a_command_of_the_users_gets_the_workers_command_behind_it(stand_in, fresh, init, eventually, Worker):
    context = init(num_cpus=1)
    command = [str(stand_in), "--word=with {braces} and 'quotes' $HOME", "--out", "{output_dir}/of_{pid}"]
    actor = Worker.options(runtime_env={"profiler": command}).remote()
    info = fresh.get(actor.info.remote())
    fresh.kill(actor)
    eventually(lambda: reports(context, "profiles"))
    # Its own pid: that of the worker is not known when the command begins.
    (report,) = reports(context, "profiles").items()
    assert report[0] == info["parent"]
    assert report[1]["own"] == ["--word=with {braces} and 'quotes' $HOME"]


def test_a_program_is_found_on_the_path_of_the_environment(stand_in, fresh, init, Worker, monkeypatch):
    init(num_cpus=1)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    environment = {"profiler": ["nsys", "--out", "{output_dir}/x"], "env_vars": {"PATH": f"{stand_in.parent}:${{PATH}}"}}
    assert fresh.get(Worker.options(runtime_env=environment).remote().info.remote())["injected"]


@pytest.mark.parametrize("profiler", ["py-spy", "memray"])
def test_real_profilers_write_what_they_have(fresh, init, eventually, Worker, profiler):
    if profiler == "memray":
        pytest.importorskip("memray")
    elif subprocess.run(["which", "py-spy"], capture_output=True, check=False).returncode:
        pytest.skip("there is no py-spy")
    context = init(num_cpus=1)
    actor = Worker.options(runtime_env={"profiler": profiler}).remote()
    fresh.get(actor.info.remote())
    fresh.kill(actor)
    folder = Path(context["session_dir"], "logs", "profiles")
    eventually(lambda: any(file.stat().st_size for file in folder.glob("worker_process_*")))


def test_a_session_may_run_all_its_workers_under_a_profiler(stand_in, run_program):
    done = run_program(
        textwrap.dedent("""
        import os
        import ENGINE as ray

        ray.init(num_cpus=2, runtime_env={"nsight": "default"}, logging_level="ERROR")
        print(ray.get([ray.remote(lambda: os.environ["INJECTED"]).remote() for _ in range(4)]))
        """)
    )
    assert str(["by the profiler"] * 4) in done.stdout
    assert "the profiles of this session are in" in done.stderr
