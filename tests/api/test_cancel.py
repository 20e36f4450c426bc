"""`cancel` of tasks wherever they are: queued, waiting for arguments, unpickling them, running, over; children; borrowers; Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import re
import signal as signals
import threading
import time

import pytest


@pytest.fixture
def marks(tmp_path):
    """A file to which workers append words; ``marks()`` reads them."""

    class Marks:
        path = str(tmp_path / "marks")

        def __call__(self):
            try:
                with open(self.path) as file:
                    return file.read().split()
            except FileNotFoundError:
                return []

    return Marks()


def mark(path, word):
    with open(path, "a") as file:
        file.write(word + "\n")


@pytest.fixture
def sleeper(ray):
    """A task that notes how it begins and ends, and runs until the gate is there."""

    def sleeper(path, name="", gate=None):
        try:
            mark(path, "begin" + name)  # whoever reads this may interrupt at once
            while gate is None or not os.path.exists(gate):
                time.sleep(0.01)
        except KeyboardInterrupt:
            mark(path, "interrupted" + name)
            raise
        mark(path, "end" + name)
        return name

    return ray.remote(num_cpus=0)(sleeper)


def text_of(error):
    """The text of an error, without colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", str(error))


def cancelled(ray, ref):
    """Whether `get` says that the task was cancelled."""
    try:
        ray.get(ref, timeout=60)
    except ray.exceptions.TaskCancelledError:
        return True
    return False


# ------------------------------------------------------------------------------------------ one task
@pytest.mark.only("mray", "local")
def test_a_task_that_sleeps_is_interrupted_in_its_sleep(ray_session, marks, eventually):
    """On Ray it is interrupted when the sleep is over."""
    ray = ray_session

    @ray.remote
    def sleeps(path):
        mark(path, "begin")
        time.sleep(10_000)

    ref = sleeps.remote(marks.path)
    eventually(lambda: marks() == ["begin"])
    ray.cancel(ref)
    assert cancelled(ray, ref)


def test_a_worker_survives_the_cancellation_of_its_task(ray_session, sleeper, marks, eventually):
    ray = ray_session

    @ray.remote
    def pid():
        return os.getpid()

    @ray.remote
    def runs(path):
        mark(path, str(os.getpid()))
        while True:
            time.sleep(0.01)

    ref = runs.remote(marks.path)
    eventually(lambda: len(marks()) == 1)
    ray.cancel(ref)
    assert cancelled(ray, ref)
    os.kill(int(marks()[0]), 0)
    assert ray.get([pid.remote() for _ in range(20)])


def test_the_error_names_the_task(ray_session, sleeper, marks, eventually):
    ray = ray_session
    ref = sleeper.remote(marks.path)
    eventually(lambda: marks() == ["begin"])
    ray.cancel(ref)
    with pytest.raises(ray.exceptions.TaskCancelledError) as caught:
        ray.get(ref)
    assert ref.task_id().hex() in str(caught.value)
    assert "was cancelled" in str(caught.value)


def test_the_error_of_a_task_that_ran_is_one_of_the_task_and_tells_the_place(ray_session, sleeper, marks, eventually):
    ray = ray_session
    ref = sleeper.remote(marks.path)
    eventually(lambda: marks() == ["begin"])
    ray.cancel(ref)
    with pytest.raises(ray.exceptions.TaskCancelledError) as caught:
        ray.get(ref, timeout=60)
    assert isinstance(caught.value, ray.exceptions.RayTaskError)
    assert type(caught.value.cause) is ray.exceptions.TaskCancelledError
    text = str(caught.value)
    assert "time.sleep(0.01)" in text
    assert re.search(rf"\nray\.exceptions\.TaskCancelledError: Task: TaskID\({ref.task_id().hex()}\) was cancelled\.", text)


def test_the_error_of_a_task_that_did_not_run_is_the_cancellation_alone(ray_session, sleeper, marks):
    ray = ray_session
    busy = sleeper.options(num_cpus=4).remote(marks.path, "busy")
    ref = sleeper.options(num_cpus=4).remote(marks.path)
    ray.cancel(ref)
    with pytest.raises(ray.exceptions.TaskCancelledError) as caught:
        ray.get(ref, timeout=60)
    assert type(caught.value) is ray.exceptions.TaskCancelledError
    ray.cancel(busy, force=True)


@pytest.mark.parametrize("made", ["task", "method"])
def test_a_task_that_waits_for_a_call_of_its_own_tells_that_it_was_cancelled_there(ray_session, sleeper, marks, eventually, made):
    ray = ray_session

    @ray.remote(num_cpus=0)
    class Slow:
        def sleep(self, path):
            mark(path, "begin")
            while True:
                time.sleep(0.01)

    slow = Slow.remote()

    @ray.remote
    def waits(actor, path):
        return ray.get(sleeper.remote(path) if made == "task" else actor.sleep.remote(path))

    ref = waits.remote(slow, marks.path)
    eventually(lambda: marks() == ["begin"])
    ray.cancel(ref)
    with pytest.raises(ray.exceptions.TaskCancelledError) as caught:
        ray.get(ref, timeout=60)
    assert isinstance(caught.value, ray.exceptions.RayTaskError)
    assert "ray::waits() (pid=" in text_of(caught.value)
    ray.kill(slow)


def test_a_task_that_reads_the_value_of_a_cancelled_one_fails_with_an_error_of_its_own(ray_session, sleeper, marks):
    ray = ray_session

    @ray.remote(num_cpus=0)
    def reads(refs):
        return ray.get(refs[0])

    child = sleeper.options(num_cpus=4).remote(marks.path)
    ray.cancel(child, force=True)
    with pytest.raises(ray.exceptions.TaskCancelledError) as caught:
        ray.get(reads.remote([child]), timeout=60)
    assert isinstance(caught.value, ray.exceptions.RayTaskError)
    assert "ray::reads() (pid=" in text_of(caught.value)


def test_what_depends_on_a_cancelled_task_fails(ray_session, sleeper, marks, eventually):
    ray = ray_session

    @ray.remote
    def depends(value):
        return value

    ref = sleeper.remote(marks.path)
    first = depends.remote(ref)
    second = depends.remote(first)
    eventually(lambda: marks() == ["begin"])
    ray.cancel(ref)
    for each in (ref, first, second):
        with pytest.raises((ray.exceptions.TaskCancelledError, ray.exceptions.RayTaskError)) as caught:
            ray.get(each, timeout=60)
        assert "TaskCancelledError" in repr(caught.value) + str(caught.value)


@pytest.mark.only("mray", "local")
def test_a_task_that_waits_for_arguments_never_runs(ray_session, sleeper, marks, tmp_path):
    """On Ray it passes, and then a check of Ray's own aborts the driver now and then."""
    ray = ray_session
    gate = tmp_path / "gate"

    @ray.remote
    def depends(_value, path):
        mark(path, "ran")

    first = sleeper.remote(marks.path, "", str(gate))
    waiting = depends.remote(first, marks.path)
    after = depends.remote(first, marks.path)
    ray.cancel(waiting)
    assert cancelled(ray, waiting)
    gate.touch()
    ray.get(after)
    assert marks() == ["begin", "end", "ran"]


class Slow:
    """Takes long to unpickle."""

    def __init__(self, path, gate):
        self.path, self.gate = path, gate

    def __reduce__(self):
        return slow, (self.path, self.gate)


def slow(path, gate):
    mark(path, "unpickling")
    while not os.path.exists(gate):
        time.sleep(0.01)
    mark(path, "unpickled")
    return Slow(path, gate)


def test_a_cancel_while_arguments_are_unpickled_neither_runs_the_task_nor_kills_the_worker(ray_session, marks, tmp_path, eventually):
    ray = ray_session
    gate = tmp_path / "gate"

    @ray.remote
    def f(argument, path):
        mark(path, "ran")

    @ray.remote
    def pids():
        return os.getpid()

    ref = f.remote(Slow(marks.path, str(gate)), marks.path)
    eventually(lambda: marks() == ["unpickling"])
    ray.cancel(ref)
    time.sleep(0.5)  # nobody is told when the worker has heard of it
    gate.touch()
    assert cancelled(ray, ref)
    assert "ran" not in marks()
    assert ray.get(pids.remote()) > 0


def test_a_cancelled_task_is_not_retried(ray_session, marks, eventually):
    ray = ray_session

    @ray.remote(max_retries=-1, retry_exceptions=True)
    def fails(path):
        mark(path, "x")
        time.sleep(0.01)
        raise ValueError

    ref = fails.remote(marks.path)
    eventually(lambda: len(marks()) > 3)
    ray.cancel(ref)
    assert cancelled(ray, ref)
    count = len(marks())
    time.sleep(0.2)
    assert len(marks()) == count


@pytest.mark.only("mray", "local")
def test_a_task_that_dies_on_its_cancellation_is_not_started_again(ray_session, marks, eventually):
    """Ray answers with the worker's death."""
    ray = ray_session

    @ray.remote(max_retries=5)
    def dies(path):
        try:
            mark(path, "begin")
            time.sleep(10_000)
        except KeyboardInterrupt:
            os._exit(1)

    ref = dies.remote(marks.path)
    eventually(lambda: marks() == ["begin"])
    ray.cancel(ref)
    assert cancelled(ray, ref)
    assert marks() == ["begin"]


def test_a_task_may_ignore_the_interrupt_and_return(ray_session, marks, eventually):
    ray = ray_session

    @ray.remote
    def stubborn(path):
        try:
            mark(path, "begin")
            while True:
                time.sleep(0.01)
        except KeyboardInterrupt:
            return "finished"

    ref = stubborn.remote(marks.path)
    eventually(lambda: marks() == ["begin"])
    ray.cancel(ref)
    assert ray.get(ref) == "finished"


@pytest.mark.only("mray", "local")
def test_a_task_that_ignored_one_interrupt_can_be_cancelled_again(ray_session, marks, eventually):
    ray = ray_session

    @ray.remote
    def stubborn(path):
        for word in ("first", "second"):
            try:
                mark(path, word)
                time.sleep(10_000)
            except KeyboardInterrupt:
                if word == "second":
                    raise

    ref = stubborn.remote(marks.path)
    eventually(lambda: marks() == ["first"])
    ray.cancel(ref)
    eventually(lambda: marks() == ["first", "second"])
    ray.cancel(ref)
    assert cancelled(ray, ref)


@pytest.mark.only("mray", "local")
def test_force_ends_the_process_and_frees_what_the_task_held(fresh, init, marks, eventually):
    """On Ray it passes, and then a check of Ray's own aborts the driver now and then."""
    ray = fresh
    init(num_cpus=1)

    @ray.remote(num_cpus=1, max_retries=5)
    def stubborn(path):
        mark(path, str(os.getpid()))
        while True:
            try:
                time.sleep(0.01)
            except KeyboardInterrupt:
                mark(path, "no")

    ref = stubborn.remote(marks.path)
    eventually(lambda: len(marks()) == 1)
    ray.cancel(ref)
    eventually(lambda: len(marks()) == 2)
    ray.cancel(ref, force=True)
    assert cancelled(ray, ref)
    eventually(lambda: not os.path.exists(f"/proc/{marks()[0]}"))
    eventually(lambda: ray.available_resources().get("CPU") == 1)
    assert ray.get(ray.remote(num_cpus=1)(lambda: 1).remote()) == 1
    assert len(marks()) == 2


@pytest.mark.only("mray", "local")
def test_thousands_are_cancelled_at_once(ray_session, sleeper, marks, tmp_path, eventually):
    """On Ray it takes a minute."""
    ray = ray_session
    gate = tmp_path / "gate"
    holders = [sleeper.options(num_cpus=1).remote(marks.path, "", str(gate)) for _ in range(4)]
    eventually(lambda: len(marks()) == 4)
    refs = [sleeper.options(num_cpus=1).remote(marks.path, "queued") for _ in range(2500)]
    for ref in refs:
        ray.cancel(ref)
    assert all(cancelled(ray, ref) for ref in refs)
    gate.touch()
    ray.get(holders)
    assert "beginqueued" not in marks()


@pytest.mark.only("mray", "local")
def test_an_interrupt_meets_the_task_that_it_is_meant_for(ray_session):
    """Short tasks follow each other in a worker; one of them is cancelled, and no other one may be hit. (Ray: takes minutes.)"""
    import random

    ray = ray_session
    numbers = random.Random(5)

    @ray.remote(max_retries=0)
    def f(count):
        total = 0
        for i in range(count):
            total += i
        return total

    for _ in range(150):
        refs = [f.remote(numbers.randint(1, 5_000)) for _ in range(12)]
        time.sleep(numbers.uniform(0, 0.001))
        doomed = refs[::3]
        for ref in doomed:
            ray.cancel(ref)
        for ref in refs:
            if ref not in doomed:
                assert ray.get(ref, timeout=60) >= 0
        for ref in doomed:
            cancelled(ray, ref)


# ------------------------------------------------------------------------------------------ children
@pytest.fixture
def parent(ray, sleeper):
    def parent(path, gate=None, depth=1):
        mark(path, f"parent{depth}")
        ray.get(parent_task.remote(path, gate, depth - 1) if depth > 1 else sleeper.remote(path, "child", gate))

    parent_task = ray.remote(num_cpus=0)(parent)
    return parent_task


@pytest.mark.parametrize("depth", [1, 3])
def test_children_of_a_cancelled_task_and_theirs_are_cancelled(ray_session, parent, marks, eventually, depth):
    ray = ray_session
    ref = parent.remote(marks.path, None, depth)
    eventually(lambda: "beginchild" in marks())
    ray.cancel(ref)
    assert cancelled(ray, ref)
    eventually(lambda: "interruptedchild" in marks())


def test_children_are_interrupted_once(ray_session, marks, tmp_path, eventually):
    """The parent's end comes while they clean up."""
    ray = ray_session

    @ray.remote(num_cpus=0)
    def child(path):
        try:
            mark(path, "child")
            while True:
                time.sleep(0.01)
        finally:
            mark(path, "interrupted")
            time.sleep(1)
            mark(path, "cleaned")

    @ray.remote(num_cpus=0)
    def parent(path):
        try:
            ray.get(child.remote(path))
        finally:
            time.sleep(0.3)

    ref = parent.remote(marks.path)
    eventually(lambda: "child" in marks())
    ray.cancel(ref)
    assert cancelled(ray, ref)
    eventually(lambda: "cleaned" in marks())


def test_without_recursion_children_go_on(ray_session, parent, marks, tmp_path, eventually):
    ray = ray_session
    gate = tmp_path / "gate"
    ref = parent.remote(marks.path, str(gate))
    eventually(lambda: "beginchild" in marks())
    ray.cancel(ref, recursive=False)
    assert cancelled(ray, ref)
    gate.touch()
    eventually(lambda: "endchild" in marks())
    assert "interruptedchild" not in marks()


@pytest.mark.only("mray", "local")
def test_queued_and_waiting_children_are_cancelled(ray_session, sleeper, marks, tmp_path, eventually):
    ray = ray_session
    gate = tmp_path / "gate"

    @ray.remote
    def depends(_value, path):
        mark(path, "ran")

    @ray.remote
    def parent(path):
        running = sleeper.remote(path, "child")
        children = [depends.remote(running, path), *(sleeper.options(resources={"custom": 2}).remote(path, "queued") for _ in range(3))]
        mark(path, "parent")
        ray.get(children)

    holder = sleeper.options(resources={"custom": 2}).remote(marks.path, "holder", str(gate))
    eventually(lambda: "beginholder" in marks())
    ref = parent.remote(marks.path)
    eventually(lambda: {"parent", "beginchild"} <= set(marks()))
    ray.cancel(ref)
    assert cancelled(ray, ref)
    eventually(lambda: "interruptedchild" in marks())
    gate.touch()
    ray.get(holder)
    eventually(lambda: ray.available_resources().get("custom") == 2)
    assert "ran" not in marks()
    assert "beginqueued" not in marks()


def test_other_tasks_of_the_same_worker_are_no_children(ray_session, sleeper, marks, tmp_path, eventually):
    """A task that has ended leaves one behind; the next task of that worker is cancelled."""
    ray = ray_session
    gate = tmp_path / "gate"

    @ray.remote(resources={"custom": 2})
    def leaves(path, gate):
        return [sleeper.remote(path, "left", gate)], os.getpid()

    @ray.remote(resources={"custom": 2})
    def hangs(path):
        mark(path, "hangs")
        while True:
            time.sleep(0.01)

    (left,), _pid = ray.get(leaves.remote(marks.path, str(gate)))
    ref = hangs.remote(marks.path)
    eventually(lambda: {"hangs", "beginleft"} <= set(marks()))
    ray.cancel(ref)
    assert cancelled(ray, ref)
    gate.touch()
    assert ray.get(left) == "left"


@pytest.mark.only("mray", "local")
def test_queued_calls_of_actors_that_a_cancelled_task_made_never_run(ray_session, marks, tmp_path, eventually):
    """Ray runs those that have reached the actor's process."""
    ray = ray_session
    gate = tmp_path / "gate"

    @ray.remote(num_cpus=0)
    class A:
        def hold(self, path, gate):
            mark(path, "holds")
            while not os.path.exists(gate):
                time.sleep(0.01)

        def note(self, path):
            mark(path, "noted")

        def ok(self):
            return True

    @ray.remote(num_cpus=0)
    def parent(a, path):
        ref = a.note.remote(path)
        mark(path, "parent")
        try:
            ray.get(ref)
        finally:
            with contextlib.suppress(ray.exceptions.TaskCancelledError):
                ray.get(ref)  # until the actor has taken it back

    a = A.remote()
    held = a.hold.remote(marks.path, str(gate))
    eventually(lambda: "holds" in marks())
    ref = parent.remote(a, marks.path)
    eventually(lambda: "parent" in marks())
    time.sleep(0.2)
    ray.cancel(ref)
    assert cancelled(ray, ref)
    gate.touch()
    ray.get(held)
    assert ray.get(a.ok.remote())
    assert "noted" not in marks()


@pytest.mark.parametrize("kind", ["plain", "threads", "coroutine"])
def test_tasks_that_a_cancelled_call_of_an_actor_has_started_are_cancelled(ray_session, sleeper, marks, eventually, kind):
    ray = ray_session

    class A:
        def plain(self, path):
            return ray.get(sleeper.remote(path, "child"))

        async def coroutine(self, path):
            return await sleeper.remote(path, "child")

    if kind == "coroutine":
        actor = ray.remote(num_cpus=0)(A).remote()
        ref = actor.coroutine.remote(marks.path)
    else:
        del A.coroutine
        actor = ray.remote(num_cpus=0, max_concurrency=2 if kind == "threads" else 1)(A).remote()
        ref = actor.plain.remote(marks.path)
    eventually(lambda: "beginchild" in marks())
    ray.cancel(ref)
    assert cancelled(ray, ref)
    eventually(lambda: "interruptedchild" in marks())


def test_a_cancelled_call_leaves_what_other_calls_of_the_actor_have_started(ray_session, sleeper, marks, tmp_path, eventually):
    ray = ray_session
    gate = tmp_path / "gate"

    @ray.remote(num_cpus=0, max_concurrency=2)
    class A:
        def start(self, path, name, gate):
            return ray.get(sleeper.remote(path, name, gate))

    actor = A.remote()
    one = actor.start.remote(marks.path, "1", str(gate))
    two = actor.start.remote(marks.path, "2", str(gate))
    eventually(lambda: {"begin1", "begin2"} <= set(marks()))
    ray.cancel(one)
    assert cancelled(ray, one)
    eventually(lambda: "interrupted1" in marks())
    gate.touch()
    assert ray.get(two) == "2"


# ------------------------------------------------------------------------------------------ borrowers
def test_a_borrower_can_cancel(ray_session, sleeper, marks, eventually):
    ray = ray_session

    @ray.remote(num_cpus=0)
    def canceller(refs):
        ray.cancel(refs[0])

    ref = sleeper.remote(marks.path)
    eventually(lambda: "begin" in marks())
    ray.get(canceller.remote([ref]))
    assert cancelled(ray, ref)
    assert "interrupted" in marks()


@pytest.mark.only("mray", "local")
def test_the_driver_can_cancel_what_a_task_owns(ray_session, sleeper, marks, eventually):
    """Ray has no owner to ask once the task is over."""
    ray = ray_session

    @ray.remote(num_cpus=0)
    def start(path):
        return [sleeper.remote(path)]

    (ref,) = ray.get(start.remote(marks.path))
    eventually(lambda: "begin" in marks())
    ray.cancel(ref)
    assert cancelled(ray, ref)


@pytest.mark.only("mray", "local")
def test_what_a_dead_process_owned_can_be_cancelled_without_effect(ray_session, sleeper, marks, eventually):
    """Ray aborts the driver now and then."""
    ray = ray_session

    @ray.remote(num_cpus=0)
    class Owner:
        def start(self, path):
            return [sleeper.remote(path)], os.getpid()

    owner = Owner.remote()
    (ref,), pid = ray.get(owner.start.remote(marks.path))
    eventually(lambda: "begin" in marks())
    os.kill(pid, signals.SIGKILL)
    ray.cancel(ref)
    with pytest.raises(ray.exceptions.OwnerDiedError):
        ray.get(ref, timeout=60)
    ray.cancel(ref, force=True)


def test_cancelling_what_was_put_has_no_effect(ray_session):
    ray = ray_session
    ref = ray.put(1)
    ray.cancel(ref)
    assert ray.get(ref) == 1


def test_cancel_wants_a_ref(ray_session):
    with pytest.raises(TypeError, match="only supported for object refs"):
        ray_session.cancel(3)


# ------------------------------------------------------------------------------------------ Ctrl-C
def interrupt_soon():
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signals.SIGINT))
    timer.start()
    return timer


@pytest.mark.only("mray", "local")
@pytest.mark.parametrize("way", ["get", "get_many", "wait"])
def test_ctrl_c_cancels_the_tasks_that_the_driver_waits_for(ray_session, sleeper, marks, eventually, way):
    """Ray leaves them running."""
    ray = ray_session
    refs = [sleeper.remote(marks.path, name) for name in ("1", "2", "other")]
    eventually(lambda: len(marks()) == 3)
    with pytest.raises(KeyboardInterrupt):
        timer = interrupt_soon()
        if way == "get":
            ray.get(refs[0])
        elif way == "get_many":
            ray.get(refs[:2])
        else:
            ray.wait(refs[:2], num_returns=2)
    timer.join()
    assert all(cancelled(ray, ref) for ref in (refs[:1] if way == "get" else refs[:2]))
    assert "interrupted1" in marks()
    assert "interruptedother" not in marks()
    assert ray.get(ray.remote(lambda: 1).remote()) == 1
    ray.cancel(refs[2])
    ray.cancel(refs[1])
    assert cancelled(ray, refs[2])


def test_ctrl_c_leaves_calls_of_actors_alone(ray_session, marks, tmp_path, eventually):
    ray = ray_session
    gate = tmp_path / "gate"

    @ray.remote(num_cpus=0)
    class A:
        def long(self, path, gate):
            mark(path, "begin")
            while not os.path.exists(gate):
                time.sleep(0.01)
            return 1

    ref = A.remote().long.remote(marks.path, str(gate))
    eventually(lambda: marks() == ["begin"])
    with pytest.raises(KeyboardInterrupt):
        timer = interrupt_soon()
        ray.get(ref)
    timer.join()
    gate.touch()
    assert ray.get(ref) == 1


@pytest.mark.only("mray", "local")
def test_ctrl_c_may_be_told_to_leave_tasks_alone(ray_session, sleeper, marks, tmp_path, eventually, monkeypatch):
    ray = ray_session
    monkeypatch.setenv("MRAY_CANCEL_ON_INTERRUPT", "0")
    gate = tmp_path / "gate"
    ref = sleeper.remote(marks.path, "", str(gate))
    eventually(lambda: marks() == ["begin"])
    with pytest.raises(KeyboardInterrupt):
        timer = interrupt_soon()
        ray.get(ref)
    timer.join()
    gate.touch()
    assert ray.get(ref) == ""


def test_a_program_that_is_interrupted_ends_with_its_tasks(run_program):
    """A real SIGINT, to a program that does not catch it."""
    done = run_program(
        """
        import os, signal, threading, time
        import ENGINE as ray

        ray.init(num_cpus=2, logging_level="ERROR", include_dashboard=False)

        @ray.remote
        def long():
            while True:
                time.sleep(0.01)

        refs = [long.remote() for _ in range(4)]
        threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            ray.get(refs)
        finally:
            print("left", flush=True)
        """,
        check=False,
    )
    assert "left" in done.stdout
    assert "KeyboardInterrupt" in done.stderr
    assert done.returncode != 0


# ------------------------------------------------------------------------------------------ asking
@pytest.mark.only("mray", "local")
def test_a_task_can_ask_whether_it_is_cancelled(ray_session, marks, eventually):
    """Ray answers in calls of actors only."""
    ray = ray_session
    context = ray.get_runtime_context

    @ray.remote
    def asks(path):
        before = context().is_canceled()
        try:
            mark(path, "begin")
            time.sleep(10_000)
        except KeyboardInterrupt:
            return before, context().is_canceled()

    @ray.remote
    def is_canceled():
        return context().is_canceled()

    ref = asks.remote(marks.path)
    eventually(lambda: marks() == ["begin"])
    ray.cancel(ref)
    assert ray.get(ref) == (False, True)
    assert ray.get([is_canceled.remote() for _ in range(8)]) == [False] * 8
