"""`runtime_env={"env_vars": ...}` per job, task and actor."""

from __future__ import annotations

import os

import pytest

from tests.api.conftest import program_environment


@pytest.fixture
def variables(ray):
    def variables(*names):
        return [os.environ.get(name) for name in names]

    return ray.remote(variables)


def test_a_task_gets_its_variables(ray_session, variables):
    f = variables.options(runtime_env={"env_vars": {"MINE": "1", "OTHER": "2"}})
    assert ray_session.get(f.remote("MINE", "OTHER")) == ["1", "2"]


def test_variables_of_one_task_are_not_seen_by_another(ray_session, variables):
    ray = ray_session
    assert ray.get(variables.options(runtime_env={"env_vars": {"LEAK": "1"}}).remote("LEAK")) == ["1"]
    assert ray.get([variables.remote("LEAK") for _ in range(4)]) == [[None]] * 4


def test_an_actor_gets_its_variables_before_its_constructor(ray_session):
    ray = ray_session

    @ray.remote(runtime_env={"env_vars": {"EARLY": "yes"}})
    class A:
        def __init__(self):
            self.seen = os.environ.get("EARLY")

        def read(self):
            return self.seen

    assert ray.get(A.remote().read.remote()) == "yes"
    assert ray.get(A.options(runtime_env={"env_vars": {"EARLY": "no"}}).remote().read.remote()) == "no"


def test_children_inherit_and_merge(ray_session, variables):
    ray = ray_session

    @ray.remote(runtime_env={"env_vars": {"A": "outer", "B": "outer"}})
    def outer():
        return ray.get([variables.remote("A", "B"), variables.options(runtime_env={"env_vars": {"B": "inner"}}).remote("A", "B")])

    assert ray.get(outer.remote()) == [["outer", "outer"], ["outer", "inner"]]


def test_variables_of_the_job_reach_everyone(fresh, init):
    ray = fresh
    init(num_cpus=2, runtime_env={"env_vars": {"JOB": "1", "BOTH": "job"}})

    def read():
        return os.environ.get("JOB"), os.environ.get("BOTH")

    @ray.remote
    class A:
        def read(self):
            return read()

    task = ray.remote(read)
    assert ray.get(task.remote()) == ("1", "job")
    assert ray.get(A.remote().read.remote()) == ("1", "job")
    assert ray.get(task.options(runtime_env={"env_vars": {"BOTH": "task"}}).remote()) == ("1", "task")
    assert "JOB" not in os.environ


@pytest.mark.only("mray")
def test_workers_are_forked_from_a_zygote_that_has_the_variables_of_the_job(fresh, init, tmp_path):
    (tmp_path / "of_the_job.py").write_text("import os; THREADS, MINE = os.environ['OMP_NUM_THREADS'], os.environ['MINE']")
    job = {
        "OMP_NUM_THREADS": "3",
        "PYTHONHASHSEED": "7",
        "TZ": "Asia/Tokyo",
        "PYTHONPATH": str(tmp_path),
        "MINE": "1",
        "PATH": "/j:${PATH}",
    }
    before = dict(os.environ)
    init(num_cpus=2, runtime_env={"env_vars": job}, preload=["colorsys"])

    @fresh.remote
    def look(*names):
        import time

        import of_the_job

        seen = [os.environ.get(name) for name in names]
        return os.getppid(), hash("a"), time.localtime(0).tm_hour, of_the_job.THREADS, of_the_job.MINE, seen

    def other(**variables):
        return fresh.get(look.options(runtime_env={"env_vars": variables}).remote(*variables))

    zygote, seed, *rest = fresh.get(look.remote("PATH"))
    assert rest == [9, "3", "1", [f"/j:{before['PATH']}"]]
    assert other(MINE="2") == (zygote, seed, 9, "3", "2", ["2"])
    assert other(TWICE="${MINE}${MINE}", OMP_NUM_THREADS="3") == (zygote, seed, 9, "3", "1", ["11", "3"])
    # Each of these is read before a worker could be told.
    node, _seed, *rest = other(OMP_NUM_THREADS="4")
    assert (node != zygote, rest) == (True, [9, "4", "1", ["4"]])
    assert other(PYTHONHASHSEED="8")[:2] != (zygote, seed)
    assert other(TZ="UTC")[:3] == (node, seed, 0)
    assert dict(os.environ) == before


@pytest.mark.only("mray")
def test_variables_with_which_no_interpreter_starts_fail_who_waits_for_a_worker(fresh, init):
    init(num_cpus=1, runtime_env={"env_vars": {"PYTHONHOME": "/nonsense"}}, log_to_driver=False)
    task = fresh.remote(lambda: 7)
    with pytest.raises(fresh.exceptions.RuntimeEnvSetupError, match="PYTHONHOME"):
        fresh.get(task.remote())
    assert fresh.get(task.options(runtime_env={"env_vars": {"PYTHONHOME": ""}}).remote()) == 7


def test_a_worker_is_reused_only_for_an_equal_environment(ray_session):
    ray = ray_session

    @ray.remote
    def pid():
        return os.getpid()

    first = pid.options(runtime_env={"env_vars": {"SAME": "1"}})
    second = pid.options(runtime_env={"env_vars": {"SAME": "2"}})
    assert not {ray.get(first.remote()) for _ in range(3)} & {ray.get(second.remote()) for _ in range(3)}


def test_variables_may_refer_to_others(ray_session, variables):
    ray = ray_session
    f = variables.options(runtime_env={"env_vars": {"PATH": "/somewhere:${PATH}"}})
    (path,) = ray.get(f.remote("PATH"))
    assert path.startswith("/somewhere:")
    assert "${PATH}" not in path
    assert len(path) > len("/somewhere:")
    g = variables.options(runtime_env={"env_vars": {"MRAY_T_A": "1", "MRAY_T_B": "${MRAY_T_A}2", "MRAY_T_C": "x${MRAY_T_NO}y"}})
    assert ray.get(g.remote("MRAY_T_B", "MRAY_T_C")) == ["12", "xy"]


@pytest.mark.parametrize("wrong", [{"env_vars": [1]}, {"env_vars": {1: "a"}}, {"env_vars": {"A": 1}}])
def test_variables_must_be_strings(ray_session, variables, wrong):
    with pytest.raises((TypeError, ValueError)):
        ray_session.get(variables.options(runtime_env=wrong).remote("A"))


def test_workers_have_the_drivers_environment(run_program):
    done = run_program(
        """
        import os
        import ENGINE as ray

        os.environ["SET_BEFORE_INIT"] = "yes"
        ray.init(num_cpus=1, logging_level="ERROR", include_dashboard=False)

        @ray.remote
        def f():
            return os.environ.get("FROM_OUTSIDE"), os.environ.get("SET_BEFORE_INIT")

        print(ray.get(f.remote()))
        """,
        env={"FROM_OUTSIDE": "1"},
    )
    assert done.stdout.splitlines() == ["('1', 'yes')"]


@pytest.mark.processes("sys.path is a whole process's")
def test_a_python_path_is_searched(run_program, tmp_path):
    for name in ("one", "two", "old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"only_in_{name}.py").write_text(f"V = {name!r}\n")
        (tmp_path / name / "in_all.py").write_text(f"V = {name!r}\n")
    done = run_program(
        """
        import os
        import subprocess
        import sys
        import ENGINE as ray

        def found(name):
            try:
                return __import__(name).V
            except ImportError:
                return None

        def look():
            child = subprocess.run([sys.executable, "-c", "import in_all; print(in_all.V)"], capture_output=True, text=True)
            return found("only_in_one"), found("only_in_two"), found("in_all"), child.stdout.strip()

        class A:
            def __init__(self):
                self.at_start = found("in_all")

            def look(self):
                return (self.at_start, *look())

        def env(*names):
            return {"runtime_env": {"env_vars": {"PYTHONPATH": ":".join(os.path.join(os.environ["FOLDER"], name) for name in names)}}}

        ray.init(num_cpus=2, logging_level="ERROR", include_dashboard=False)
        task = ray.remote(look)
        print(ray.get(task.remote()))
        print(ray.get(task.options(**env("one")).remote()))
        print(ray.get(task.options(**env("two", "one")).remote()))
        print(ray.get(ray.remote(**env("two"))(A).remote().look.remote()))
        ray.shutdown()
        ray.init(num_cpus=2, logging_level="ERROR", include_dashboard=False, **env("one"))
        print(ray.get(task.remote()), ray.get(ray.remote(A).remote().look.remote()))
        print(ray.get(task.options(**env("two")).remote()))
        ray.shutdown()
        os.environ["PYTHONPATH"] = os.path.join(os.environ["FOLDER"], "two") + ":" + os.environ["PYTHONPATH"]
        ray.init(num_cpus=2, logging_level="ERROR", include_dashboard=False)
        print(ray.get(task.remote()))
        print(found("only_in_two"))
        """,
        env={"PYTHONPATH": os.pathsep.join((str(tmp_path / "old"), program_environment({})["PYTHONPATH"])), "FOLDER": str(tmp_path)},
    )
    one, two, old = (("one", None, "one", "one"), (None, "two", "two", "two"), (None, None, "old", "old"))
    expected = [old, one, ("one", "two", "two", "two"), ("two", *two), f"{one} {('one', *one)}", two, two, None]
    assert done.stdout.splitlines() == [str(line) for line in expected]


def test_the_drivers_folder_and_working_directory_reach_workers(run_program, tmp_path):
    done = run_program(
        """
        import os
        import sys
        import ENGINE as ray

        ray.init(num_cpus=1, logging_level="ERROR", include_dashboard=False)

        @ray.remote
        def f():
            return os.path.dirname(os.path.abspath(__import__("sys").argv[0])) is not None, os.getcwd()

        here = os.path.dirname(os.path.abspath(__file__))
        print(ray.get(f.remote())[1] == os.getcwd(), ray.get(ray.remote(lambda: here in sys.path).remote()))
        """
    )
    assert done.stdout.splitlines() == ["True True"]


def test_a_runtime_env_may_be_an_object(ray_session, variables):
    RuntimeEnv = ray_session.runtime_env.RuntimeEnv
    environment = RuntimeEnv(env_vars={"FROM_OBJECT": "1"})
    assert environment["env_vars"] == {"FROM_OBJECT": "1"}
    assert ray_session.get(variables.options(runtime_env=environment).remote("FROM_OBJECT")) == ["1"]


@pytest.mark.processes("folders, modules and hooks are a whole process's")
def test_a_setup_hook_runs_in_every_worker_first(fresh, init):
    ray = fresh

    def hook():
        os.environ["HOOKED"] = "yes"

    init(num_cpus=1, runtime_env={"worker_process_setup_hook": hook})

    @ray.remote
    def f():
        return os.environ.get("HOOKED")

    @ray.remote
    class A:
        def __init__(self):
            self.seen = os.environ.get("HOOKED")

        def read(self):
            return self.seen

    assert ray.get(f.remote()) == "yes"
    assert ray.get(A.remote().read.remote()) == "yes"
    assert "HOOKED" not in os.environ


@pytest.mark.processes("folders, modules and hooks are a whole process's")
def test_a_working_dir_is_the_workers_folder(fresh, init, tmp_path):
    ray = fresh
    (tmp_path / "there.py").write_text("VALUE = 7\n")
    (tmp_path / "file.txt").write_text("contents")
    init(num_cpus=1, runtime_env={"working_dir": str(tmp_path)})

    @ray.remote
    def f():
        import there

        with open("file.txt") as file:
            return there.VALUE, file.read()

    assert ray.get(f.remote()) == (7, "contents")


@pytest.mark.processes("folders, modules and hooks are a whole process's")
def test_modules_of_py_modules_can_be_imported(fresh, init, tmp_path):
    ray = fresh
    package = tmp_path / "given_package"
    package.mkdir()
    (package / "__init__.py").write_text("VALUE = 8\n")
    init(num_cpus=1, runtime_env={"py_modules": [str(package)]})

    @ray.remote
    def f():
        import given_package

        return given_package.VALUE

    assert ray.get(f.remote()) == 8
