"""Large numbers, small memories, and hands that are not gentle."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from tests.checkout import python_path

pytestmark = pytest.mark.timeout(900)
MIB = 1 << 20


def test_a_hundred_thousand_tasks_can_be_queued(ray, count):
    number = count(10_000, 100_000)

    @ray.remote
    def f(x):
        return x

    refs = [f.remote(i) for i in range(number)]
    assert ray.get(refs) == list(range(number))


def test_a_hundred_thousand_small_objects_can_live_at_once(ray, count):
    number = count(10_000, 100_000)
    refs = [ray.put(i) for i in range(number)]
    assert ray.get(refs) == list(range(number))
    outer = ray.put(refs)
    del refs
    gc.collect()
    assert ray.get(ray.get(outer)[number // 2]) == number // 2


def test_a_hundred_thousand_objects_pass_through_one_actor(ray, count):
    number = count(5_000, 100_000)

    @ray.remote
    class Keeper:
        def __init__(self):
            self.refs = []

        def keep(self, refs):
            self.refs.extend(refs)
            return len(self.refs)

        def total(self):
            return sum(ray.get(self.refs))

    keeper = Keeper.remote()
    for start in range(0, number, 1000):
        ray.get(keeper.keep.remote([ray.put(i) for i in range(start, start + 1000)]))
    gc.collect()
    assert ray.get(keeper.total.remote()) == sum(range(number))


def test_a_thousand_names_can_be_taken(ray, count):
    """Names of actors that wait for a resource: they have no process yet."""
    number = count(200, 1000)

    @ray.remote(num_cpus=2)
    class Named:
        def f(self):
            return 1

    holder = Named.remote()
    ray.get(holder.f.remote())
    actors = [Named.options(name=f"name-{i}").remote() for i in range(number)]
    assert len(ray.util.list_named_actors()) == number
    assert [ray.get_actor(f"name-{i}") for i in range(number)] == actors
    with pytest.raises(ValueError):
        Named.options(name="name-7").remote()
    for actor in actors:
        ray.kill(actor)
    deadline = time.monotonic() + 60
    while ray.util.list_named_actors():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_names_can_be_taken_and_freed_many_times(ray, count):
    @ray.remote(num_cpus=0)
    class Named:
        def f(self):
            return 1

    for _ in range(count(30, 1000)):
        actor = Named.options(name="again", get_if_exists=True).remote()
        try:
            assert ray.get(actor.f.remote()) == 1
        except ray.exceptions.RayActorError:
            continue
        ray.kill(actor)


def test_many_threads_get_and_call_at_once(ray, count):
    @ray.remote
    def f(x):
        return x

    @ray.remote
    class Counter:
        def __init__(self):
            self.n = 0

        def increment(self):
            self.n += 1
            return self.n

    rounds = count(20, 500)
    actor = Counter.remote()
    errors = []

    def work(number):
        try:
            for i in range(rounds):
                assert ray.get(f.remote((number, i))) == (number, i)
                assert ray.get(ray.put(i)) == i
                ray.get(actor.increment.remote())
                ready, rest = ray.wait([f.remote(j) for j in range(3)], num_returns=3)
                assert (len(ready), rest) == (3, [])
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert ray.get(actor.increment.remote()) == 16 * rounds + 1


def test_sessions_can_start_and_stop_hundreds_of_times(count):
    import mray

    @mray.remote
    def f():
        return os.getpid()

    def info():
        gc.collect()
        return len(os.listdir("/proc/self/fd")), threading.active_count()

    before = None
    for number in range(count(25, 300)):
        mray.init(num_cpus=1, logging_level="ERROR")
        mray.get(f.remote())
        mray.shutdown()
        if number == 2:
            before = info()
    assert info() == before


def test_a_session_can_stop_in_the_middle_of_anything(count):
    import mray

    @mray.remote
    def busy():
        time.sleep(10_000)

    @mray.remote
    class A:
        def f(self, refs):
            return mray.get(refs)

    for _ in range(count(5, 50)):
        mray.init(num_cpus=2, logging_level="ERROR")
        refs = [busy.remote() for _ in range(20)]
        actor = A.remote()
        actor.f.remote(refs)
        mray.put(b"x" * MIB)
        mray.shutdown()
        assert not mray.is_initialized()


def test_a_deep_tree_of_tasks_finishes(ray, count):
    @ray.remote
    def tree(depth):
        return 1 if depth == 0 else sum(ray.get([tree.remote(depth - 1) for _ in range(2)]))

    depth = count(5, 8)
    assert ray.get(tree.remote(depth)) == 2**depth


def test_a_small_store_is_full_with_a_clear_error_and_goes_on():
    import numpy

    import mray

    without = {"automatic_object_spilling_enabled": False}
    mray.init(num_cpus=1, object_store_memory=80 * MIB, logging_level="ERROR", _system_config=without)
    try:
        held = []
        with pytest.raises(mray.exceptions.ObjectStoreFullError):
            while len(held) < 20:
                held.append(mray.put(numpy.ones(10 * MIB, dtype=numpy.uint8)))
        assert len(held) >= 4
        assert all(mray.get(ref)[0] == 1 for ref in held)
        held.clear()
        gc.collect()
        assert mray.get(mray.put(numpy.ones(10 * MIB, dtype=numpy.uint8)))[0] == 1

        @mray.remote
        def large():
            return numpy.ones(100 * MIB, dtype=numpy.uint8)

        with pytest.raises(mray.exceptions.ObjectStoreFullError):
            mray.get(large.remote())
        with pytest.raises(mray.exceptions.ObjectStoreFullError):
            mray.put(numpy.ones(100 * MIB, dtype=numpy.uint8))
        assert mray.get(mray.put(1)) == 1
    finally:
        mray.shutdown()


SMALL_TMPFS = """
import os
import sys
import numpy
import mray

spilling = sys.argv[1] == "spilling"
mray.init(num_cpus=1, logging_level="ERROR", object_store_memory=100 << 20, _system_config={"automatic_object_spilling_enabled": spilling})
held = []
try:
    for _ in range(40):
        held.append(mray.put(numpy.ones(1 << 20, dtype=numpy.uint8)))
    print("all", sum(mray.get(ref)[-1] for ref in held))
except mray.exceptions.ObjectStoreFullError as error:
    print("full", len(held) >= 4)
held.clear()
print(mray.get(mray.put(numpy.ones(1 << 20, dtype=numpy.uint8))).sum() == 1 << 20)

@mray.remote(max_retries=0)
def large():
    return numpy.ones(40 << 20, dtype=numpy.uint8)

try:
    print(len(mray.get(large.remote())))
except mray.exceptions.ObjectStoreFullError:
    print("full in a task")

@mray.remote
def small():
    return 1

print(mray.get(small.remote()))
mray.shutdown()
print(sorted(os.listdir("/dev/shm")))
"""


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("spilling", ["all 40", "True", str(40 << 20), "1", "[]"]),
        ("refusing", ["full True", "True", "full in a task", "1", "[]"]),
    ],
)
def test_a_full_dev_shm_sends_objects_to_disk_or_is_an_error_and_never_sigbus(tmp_path, mode, expected):
    """In a mount namespace of its own, where /dev/shm is a tmpfs of 16 MiB."""
    (tmp_path / "program.py").write_text(SMALL_TMPFS)
    mount = "mount -t tmpfs -o size=16m tmpfs /dev/shm"
    probe = subprocess.run(["unshare", "--mount", "sh", "-c", mount], capture_output=True, check=False)
    if probe.returncode != 0:
        pytest.skip("needs the right to mount")
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", f"{mount} && exec {sys.executable} program.py {mode}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=dict(os.environ, PYTHONPATH=python_path()),
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == expected


def test_a_driver_that_forks_keeps_its_session(ray):
    @ray.remote
    def f(x):
        return x + 1

    assert ray.get(f.remote(1)) == 2
    for _ in range(3):
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        assert ray.get(f.remote(1)) == 2
    child = os.fork()
    if child == 0:
        # An orderly end of the child, its exit handlers included, is not the end of the session either.
        try:
            sys.exit(0)
        except SystemExit:
            import atexit

            atexit._run_exitfuncs()
            os._exit(0)
    os.waitpid(child, 0)
    assert ray.get(f.remote(2)) == 3


def test_a_forked_child_can_have_a_session_of_its_own(tmp_path, child_program):
    done = child_program(
        """
        import os
        import mray

        mray.init(num_cpus=1, logging_level="ERROR")

        @mray.remote
        def f(x):
            return x + 1

        assert mray.get(f.remote(1)) == 2
        child = os.fork()
        if child == 0:
            mray.shutdown()
            mray.init(num_cpus=1, logging_level="ERROR")
            print("child", mray.get(f.remote(2)), flush=True)
            mray.shutdown()
            os._exit(0)
        print("status", os.waitpid(child, 0)[1], flush=True)
        print("parent", mray.get(f.remote(3)), flush=True)
        """
    )
    assert done.stdout.splitlines() == ["child 3", "status 0", "parent 4"]


def test_multiprocessing_in_the_driver_does_no_harm(tmp_path, child_program):
    done = child_program(
        """
        import multiprocessing
        import mray

        mray.init(num_cpus=1, logging_level="ERROR")

        @mray.remote
        def f(x):
            return x + 1

        assert mray.get(f.remote(1)) == 2
        with multiprocessing.get_context("fork").Pool(2) as pool:
            print(pool.map(abs, [-1, 2]))
        print(mray.get(f.remote(3)))
        """
    )
    assert done.stdout.splitlines() == ["[1, 2]", "4"]


@pytest.mark.parametrize("verb", ["get", "wait", "graph"])
def test_ctrl_c_interrupts_who_waits_and_the_session_goes_on(tmp_path, child_program, verb):
    done = child_program(
        f"""
        import os
        import signal
        import sys
        import threading
        import time
        import mray

        mray.init(num_cpus=2, logging_level="ERROR")

        @mray.remote
        class A:
            def slow(self, x):
                while not os.path.exists("release"):
                    time.sleep(0.002)
                return x

            def f(self, x):
                return x

        a, b = A.remote(), A.remote()
        ref = a.slow.remote(1) if {verb!r} != "graph" else None
        if {verb!r} == "graph":
            with mray.dag.InputNode() as value:
                graph = b.f.bind(a.slow.bind(value)).experimental_compile()
            ref = graph.execute(1)
        main = threading.main_thread().ident

        def interrupt():
            while "/mray/_" not in sys._current_frames()[main].f_code.co_filename:
                time.sleep(0.001)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt).start()
        try:
            mray.wait([ref]) if {verb!r} == "wait" else mray.get(ref)
        except KeyboardInterrupt:
            print("interrupted")
        open("release", "w").close()
        print(mray.get(ref))
        print(mray.get(b.f.remote(2)) if {verb!r} != "graph" else 2)
        """
    )
    assert done.stdout.splitlines() == ["interrupted", "1", "2"]


def test_ctrl_c_to_the_whole_group_leaves_the_workers_alone(tmp_path):
    """A terminal sends SIGINT to all processes of the foreground group."""
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(
            """
            import os
            import time
            import mray

            mray.init(num_cpus=1, logging_level="ERROR")

            @mray.remote
            class A:
                def f(self):
                    return os.getpid()

            a = A.remote()
            pid = mray.get(a.f.remote())
            try:
                print("ready", flush=True)
                while True:
                    time.sleep(1)
            except KeyboardInterrupt:
                print(mray.get(a.f.remote()) == pid, flush=True)
            """
        )
    )
    environment = dict(os.environ, PYTHONPATH=python_path())
    with subprocess.Popen(
        [sys.executable, str(program)], stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=environment, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        os.killpg(process.pid, signal.SIGINT)
        assert process.stdout.read() == "True\n"
        assert process.wait(60) == 0


#: A value that is sent, the end of its journey, and its misbehaviour: `exit` ends the worker that handles it.
MISBEHAVIOUR = [
    ("argument", "pickle", "raise"),
    ("argument", "unpickle", "raise"),
    ("argument", "unpickle", "exit"),
    ("result", "pickle", "raise"),
    ("result", "pickle", "exit"),
    ("result", "unpickle", "raise"),
]


@pytest.mark.parametrize(("where", "when", "way"), MISBEHAVIOUR)
def test_values_that_misbehave_while_they_travel(ray, where, when, way):
    def misbehave():
        if way == "raise":
            raise RuntimeError("misbehaves")
        os._exit(5)

    def identity():
        misbehave()

    class Misbehaves:
        def __reduce__(self):
            if when == "pickle":
                misbehave()
            return (identity, ())

    @ray.remote(max_retries=0)
    def f(x=None):
        return Misbehaves() if where == "result" else x

    expected = (RuntimeError, ray.exceptions.RayError, TypeError)
    with pytest.raises(expected):
        ray.get(f.remote(Misbehaves()) if where == "argument" else f.remote())

    @ray.remote
    def fine():
        return 1

    assert ray.get(fine.remote()) == 1


@pytest.fixture
def child_program(tmp_path):
    """Runs a program in a process of its own and checks that it ends with 0."""

    def run(text):
        path = tmp_path / "program.py"
        path.write_text(textwrap.dedent(text))
        environment = dict(os.environ, PYTHONPATH=python_path())
        done = subprocess.run(
            [sys.executable, str(path)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=environment,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done

    return run
