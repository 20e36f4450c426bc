"""Programs as users write them: no main guard, typed into a prompt, as the documents show them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

#: These programs are as users start them.
ANEW = True
QUIET = 'ray.init(num_cpus=2, logging_level="ERROR", include_dashboard=False)'


def test_a_script_needs_no_main_guard(run_program):
    done = run_program(
        f"""
        import ENGINE as ray

        {QUIET}
        CONSTANT = 10

        def plain(x):
            return x + CONSTANT

        @ray.remote
        def f(x):
            return plain(x)

        class Base:
            def g(self):
                return CONSTANT

        @ray.remote
        class A(Base):
            def h(self, x):
                return self.g() + plain(x)

        a = A.remote()
        print(ray.get([f.remote(1), a.h.remote(2)]))
        print("once")
        """
    )
    assert done.stdout.splitlines() == ["[11, 22]", "once"]


def test_a_script_without_init_and_shutdown_ends(run_program):
    done = run_program(
        """
        import ENGINE as ray

        @ray.remote
        def f():
            return 5

        print(ray.get(f.remote()))
        """
    )
    assert done.stdout.split()[-1] == "5"


def test_classes_of_main_keep_their_identity(run_program):
    done = run_program(
        f"""
        import ENGINE as ray

        {QUIET}

        class Value:
            def __init__(self, x):
                self.x = x

            def __eq__(self, other):
                return isinstance(other, Value) and self.x == other.x

        class Trouble(Exception):
            pass

        @ray.remote
        def f(value):
            assert isinstance(value, Value)
            return Value(value.x + 1)

        @ray.remote
        def fails():
            raise Trouble("here")

        print(ray.get(f.remote(Value(1))) == Value(2), isinstance(ray.get(f.remote(Value(1))), Value))
        try:
            ray.get(fails.remote())
        except Trouble as error:
            print("Trouble", isinstance(error, ray.exceptions.RayTaskError))
        """
    )
    assert done.stdout.splitlines() == ["True True", "Trouble True"]


def test_a_prompt_works(run_program):
    done = run_program(
        """
import ENGINE as ray
_ = ray.init(num_cpus=2, logging_level="ERROR", include_dashboard=False)
K = 3
@ray.remote
def f(x):
    return x * K

@ray.remote
class Counter:
    def __init__(self):
        self.n = 0
    def increment(self):
        self.n += 1
        return self.n

c = Counter.remote()
print("RESULT", ray.get([f.remote(2), c.increment.remote(), c.increment.remote()]))
def f(x):
    return -x

f = ray.remote(f)
print("AGAIN", ray.get(f.remote(2)))
""",
        stdin=True,
    )
    assert "RESULT [6, 1, 2]" in done.stdout
    assert "AGAIN -2" in done.stdout


def test_a_script_that_raises_ends_with_its_traceback(run_program):
    done = run_program(
        f"""
        import ENGINE as ray

        {QUIET}

        @ray.remote
        def fails():
            raise ValueError("unhandled")

        ray.get(fails.remote())
        """,
        check=False,
    )
    assert done.returncode == 1
    assert "ValueError" in done.stderr
    assert "unhandled" in done.stderr


def test_exit_codes_of_scripts_are_kept(run_program):
    done = run_program(
        f"""
        import sys
        import ENGINE as ray

        {QUIET}
        ray.get(ray.remote(lambda: 1).remote())
        sys.exit(7)
        """,
        check=False,
    )
    assert done.returncode == 7


def test_functions_of_a_module_beside_the_script_can_be_remote(run_program, tmp_path):
    (tmp_path / "library.py").write_text("class Thing:\n    def f(self):\n        return 'thing'\n\n\ndef g(x):\n    return x + 1\n")
    done = run_program(
        f"""
        import library
        import ENGINE as ray

        {QUIET}
        thing = ray.remote(library.Thing).remote()
        print(ray.get([thing.f.remote(), ray.remote(library.g).remote(1)]))
        """
    )
    assert done.stdout.splitlines() == ["['thing', 2]"]


def test_output_of_the_driver_stays_its_own(run_program):
    done = run_program(
        f"""
        import ENGINE as ray

        {QUIET}
        print("first")
        ray.get(ray.remote(lambda: 1).remote())
        print("second")
        """
    )
    assert done.stdout.splitlines() == ["first", "second"]


# --------------------------------------------------------------------------------------------- documents
QUICKSTART = """
import ENGINE as ray
import time

@ray.remote
class SimpleActor:
    def echo(self, msg):
        return msg

a = SimpleActor.remote()

# warmup
for _ in range(5):
    msg_ref = a.echo.remote("hello")
    ray.get(msg_ref)

start = time.perf_counter()
msg_ref = a.echo.remote("hello")
ray.get(msg_ref)
end = time.perf_counter()
print(f"Execution takes {(end - start) * 1000 * 1000} us")

import ENGINE.dag
with ray.dag.InputNode() as inp:
    # Note that it uses `bind` instead of `remote`.
    dag = a.echo.bind(inp)
# experimental_compile is the key for optimizing the performance.
dag = dag.experimental_compile()

# warmup
for _ in range(5):
    msg_ref = dag.execute("hello")
    ray.get(msg_ref)

start = time.perf_counter()
# `dag.execute` runs the DAG and returns a future. You can use `ray.get` API.
msg_ref = dag.execute("hello")
ray.get(msg_ref)
end = time.perf_counter()
print(f"Execution takes {(end - start) * 1000 * 1000} us")
"""

LEARNINGS = """
import ENGINE as ray
ray.init()	#To initialise ray in the python file

# A regular Python function.
def regular_function():
    return 1

# A Ray remote function.
@ray.remote
def remote_function():
    return 1

assert regular_function() == 1

object_id = remote_function.remote()

# The value of the original `regular_function`
assert ray.get(object_id) == 1

# These happen serially.
for _ in range(4):
    regular_function()

# These happen in parallel.
for _ in range(4):
    remote_function.remote()

@ray.remote
def remote_chain_function(value):
    return value + 1


y1_id = remote_function.remote()
assert ray.get(y1_id) == 1

chained_id = remote_chain_function.remote(y1_id)
assert ray.get(chained_id) == 2

ray.shutdown()
ray.init(num_cpus=8, num_gpus=4, resources={'Custom': 2})
assert ray.cluster_resources()["CPU"] == 8
assert ray.cluster_resources()["GPU"] == 4
assert ray.cluster_resources()["Custom"] == 2
print("learned")
"""

WITH_GPUS = """
import os
import ENGINE as ray

ray.init(num_gpus=2)
ray.shutdown()
ray.init(num_cpus=10, num_gpus=2)

@ray.remote(num_gpus=1)
def gpu_method():
  return "I am allowed to use 1 GPU."

print(ray.get(gpu_method.remote()))  # Returns "I am allowed to use 1 GPU."

@ray.remote(num_gpus=1)
class GPUActor(object):
  def some_method(self):
    return "I am allowed to use 1 GPU."

a1 = GPUActor.remote()
print(ray.get(a1.some_method.remote()))  # Returns "I am allowed to use 1 GPU."
del a1

x = 2
actors = [GPUActor.remote() for _ in range(x)]
print(ray.get([actor.some_method.remote() for actor in actors]))
del actors

@ray.remote(num_gpus=1)
class GPUActor(object):
  def __init__(self):
    gpu_ids = ray.get_gpu_ids()  # Of length 1
    assert len(gpu_ids) == 1
    os.environ['CUDA_VISIBLE_DEVICES'] = ','.join([str(i) for i in ray.get_gpu_ids()])

  def look(self):
    return os.environ['CUDA_VISIBLE_DEVICES']

actors = [GPUActor.remote() for _ in range(2)]
print(sorted(ray.get([actor.look.remote() for actor in actors])))
"""


def test_the_quickstart_runs(run_program):
    done = run_program(QUICKSTART)
    lines = [line for line in done.stdout.splitlines() if line.startswith("Execution takes ")]
    assert len(lines) == 2


def test_the_learnings_run(run_program):
    assert "learned" in run_program(LEARNINGS).stdout


def test_the_document_on_gpus_runs(run_program):
    allowed = "I am allowed to use 1 GPU."
    assert run_program(WITH_GPUS).stdout.splitlines() == [allowed, allowed, str([allowed, allowed]), "['0', '1']"]


@pytest.mark.differs("the document expects an exception for more GPUs than there are; Ray waits for ever, mray raises")
@pytest.mark.only("mray")
def test_an_actor_with_more_gpus_than_there_are_raises(run_program):
    done = run_program(
        """
        import ENGINE as ray

        ray.init(num_gpus=2, logging_level="ERROR")

        @ray.remote(num_gpus=3)
        class GPUActor(object):
            def some_method(self):
                return "never"

        try:
            ray.get(GPUActor.remote().some_method.remote())
        except Exception as error:
            print(type(error).__name__, "GPU" in str(error) and "3" in str(error) and "2" in str(error))
        """
    )
    assert done.stdout.split()[-1] == "True"


# ------------------------------------------------------------------------------------------ import ray
AS_RAY = """
import sys
import ray
import ray.dag
from ray.dag import InputNode, MultiOutputNode
from ray.exceptions import RayTaskError

ray.init(num_cpus=2, logging_level="ERROR", include_dashboard=False)

@ray.remote
def f():
    import ray
    import ray.dag
    from ray.exceptions import GetTimeoutError
    return ray.__name__, GetTimeoutError.__module__

@ray.remote
class A:
    def echo(self, x):
        return x

a = A.remote()
with InputNode() as inp:
    dag = a.echo.bind(inp)
print(ray.get(dag.execute(3)), ray.get(f.remote())[0], sys.argv[1:])
try:
    import ray.no_such_part
except ImportError as error:
    print("ImportError", "no_such_part" in str(error))
"""


@pytest.mark.only("mray")
@pytest.mark.parametrize("launcher", [["-m", "mray", "run"]])
def test_a_script_that_imports_ray_runs_unchanged(tmp_path, launcher, run_program):
    (tmp_path / "theirs.py").write_text(AS_RAY)
    done = run_program(
        f"""
        import subprocess, sys
        sys.exit(subprocess.run([sys.executable, *{launcher!r}, "theirs.py", "one", "--two"]).returncode)
        """
    )
    lines = done.stdout.splitlines()
    assert lines[0].startswith("3 ")
    assert lines[0].endswith("['one', '--two']")
    assert lines[1] == "ImportError True"


@pytest.mark.processes("workers are interpreters of their own")
def test_workers_look_for_packages_where_the_driver_does(run_program):
    """An interpreter that was told to leave folders of packages out has workers that leave them out."""
    program = f"""
    import sys, ENGINE as ray
    {QUIET}

    @ray.remote
    class Flags:
        def read(self):
            return sys.flags.no_user_site, sys.flags.no_site

    own = Flags.options(runtime_env={{"env_vars": {{"PYTHONHASHSEED": "1"}}}}).remote()
    print("flags", ray.get([Flags.remote().read.remote(), own.read.remote()]))
    """
    packages = os.pathsep.join([str(Path(__file__).resolve().parents[2]), *(path for path in sys.path if path.endswith("site-packages"))])
    told = run_program(program, flags=["-s", "-S", "-W", "ignore"], env={"PYTHONPATH": packages}).stdout
    assert "flags [(1, 1), (1, 1)]" in told
