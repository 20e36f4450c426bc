"""How often what is started again: tasks and methods that raise or die, actors that restart, and what is counted."""

from __future__ import annotations

import os
import signal as signals
import threading
import time

import pytest


def is_gone(pid):
    """Whether there is no such process. (In one process, pids are not the kernel's.)"""
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    return False


@pytest.fixture
def attempts(tmp_path):
    """A file that grows by a word with each attempt; ``attempts()`` reads them."""

    class Attempts:
        path = str(tmp_path / "attempts")

        def __call__(self):
            if not os.path.exists(self.path):
                return []
            with open(self.path) as file:
                return file.read().split()

    return Attempts()


def note(path, word="x"):
    """Writes a word and says how many there are."""
    with open(path, "a") as file:
        file.write(word + "\n")
    with open(path) as file:
        return len(file.read().split())


# ------------------------------------------------------------------------------------------ tasks
def test_raises_and_deaths_of_a_task_are_counted_together(ray_session, attempts):
    ray = ray_session

    @ray.remote(max_retries=3, retry_exceptions=True)
    def mixed(path):
        if note(path) % 2:
            os._exit(1)
        raise ValueError("raised")

    with pytest.raises(ValueError, match="raised"):
        ray.get(mixed.remote(attempts.path))
    assert len(attempts()) == 4


@pytest.mark.parametrize(("retries", "times"), [(0, 1), (2, 3)])
def test_a_task_whose_worker_dies_is_started_again_so_often(ray_session, attempts, retries, times):
    ray = ray_session

    @ray.remote
    def dies(path):
        note(path)
        os._exit(1)

    with pytest.raises(ray.exceptions.WorkerCrashedError):
        ray.get(dies.options(max_retries=retries).remote(attempts.path))
    assert len(attempts()) == times


def test_without_end_means_without_end(ray_session, attempts):
    ray = ray_session

    @ray.remote(max_retries=-1, retry_exceptions=[ValueError])
    def works_at_last(path):
        count = note(path)
        if count < 6:
            raise ValueError
        if count < 9:
            os._exit(1)
        return count

    assert ray.get(works_at_last.remote(attempts.path)) == 9


def test_listed_exceptions_are_retried_with_their_subclasses_and_no_others(ray_session, attempts):
    ray = ray_session

    class Mine(ValueError):
        pass

    @ray.remote(max_retries=2)
    def fails(path, error):
        note(path)
        raise error("no")

    listed = fails.options(retry_exceptions=[ValueError])
    with pytest.raises(ValueError):
        ray.get(listed.remote(attempts.path, Mine))
    assert len(attempts()) == 3
    with pytest.raises(KeyError):
        ray.get(listed.remote(attempts.path, KeyError))
    assert len(attempts()) == 4
    with pytest.raises(KeyError):
        ray.get(fails.remote(attempts.path, KeyError))
    assert len(attempts()) == 5


def test_options_override_the_decorator_both_ways(ray_session, attempts):
    ray = ray_session

    @ray.remote(max_retries=1, retry_exceptions=True)
    def fails(path):
        note(path)
        raise ValueError

    with pytest.raises(ValueError):
        ray.get(fails.options(retry_exceptions=False).remote(attempts.path))
    assert len(attempts()) == 1
    with pytest.raises(ValueError):
        ray.get(fails.options(max_retries=3).remote(attempts.path))
    assert len(attempts()) == 5


@pytest.mark.only("mray", "local", "ray")  # with Ray behind mray, it is a class of mray that Ray does not know
def test_the_error_of_a_users_function_in_a_library_decides_on_a_retry(ray_session, attempts):
    ray = ray_session

    def wrapped(cause):
        raise ray.exceptions.UserCodeException("wrapped") from cause

    @ray.remote(max_retries=1)
    def fails(path, cause):
        note(path)
        wrapped(cause)

    def times(cause, *listed):
        before = len(attempts())
        with pytest.raises(ray.exceptions.UserCodeException):
            ray.get(fails.options(retry_exceptions=list(listed)).remote(attempts.path, cause))
        return len(attempts()) - before

    assert times(ValueError(), ValueError) == 2
    assert times(ValueError(), ray.exceptions.UserCodeException) == 1
    assert times(None, ray.exceptions.UserCodeException) == 1
    assert times(KeyError(), ValueError) == 1


@pytest.mark.parametrize("wrong", [[1], ["ValueError"], "ValueError", 3])
def test_retry_exceptions_are_a_flag_or_a_list_of_classes(ray_session, wrong):
    with pytest.raises((TypeError, ValueError), match="retry_exceptions"):
        ray_session.remote(retry_exceptions=wrong)(lambda: 1)


def test_a_retry_that_works_is_all_that_the_caller_sees(ray_session, attempts):
    ray = ray_session

    @ray.remote(retry_exceptions=True)
    def second(path, value):
        if note(path) == 1:
            raise ValueError
        return value

    @ray.remote
    def double(value):
        return 2 * value

    large = ray.put(b"x" * 1_000_000)
    assert ray.get(double.remote(second.remote(attempts.path, large))) == b"x" * 2_000_000


def test_several_return_values_are_retried_as_one(ray_session, attempts):
    ray = ray_session

    @ray.remote(num_returns=2, max_retries=1, retry_exceptions=True)
    def two(path):
        if note(path) == 1:
            raise ValueError
        return 1, 2

    assert ray.get(two.remote(attempts.path)) == [1, 2]


def test_one_death_does_not_use_up_the_retries_of_tasks_behind_it(ray_session, attempts):
    ray = ray_session

    @ray.remote(max_retries=1)
    def dies_once(path, which):
        if which == 3 and note(path) == 1:
            os._exit(1)
        return which

    for _ in range(3):
        assert ray.get([dies_once.remote(attempts.path, i) for i in range(50)]) == list(range(50))


# ------------------------------------------------------------------------------------------ actors
@pytest.fixture
def log_actor(ray):
    class Log:
        """Remembers in memory and on disk what it was called with."""

        def __init__(self, path=None, *given):
            self.seen = []
            self.given = given
            if path is not None:
                note(path, "init")

        def add(self, x):
            self.seen.append(x)
            return list(self.seen)

        def value(self):
            return self.given

        def pid(self):
            return os.getpid()

        def restarted(self):
            return context().was_current_actor_reconstructed

    context = ray.get_runtime_context
    return ray.remote(Log)


@pytest.mark.differs("Ray counts a death twice when the method raises in between")
def test_raises_and_deaths_of_a_method_are_counted_together(ray_session, attempts, engine):
    ray = ray_session

    @ray.remote(max_restarts=-1)
    class A:
        @ray.method(max_task_retries=4, retry_exceptions=[ValueError])
        def mixed(self, path):
            if note(path) % 2:
                os._exit(1)
            raise ValueError("raised")

    with pytest.raises((ValueError, ray.exceptions.RayActorError)):
        ray.get(A.remote().mixed.remote(attempts.path))
    assert len(attempts()) == (5 if engine == "mray" else 3)


def test_a_call_may_say_how_often_it_is_retried(ray_session, attempts):
    ray = ray_session

    @ray.remote
    class A:
        @ray.method(retry_exceptions=True, max_task_retries=1)
        def fails(self, path):
            note(path)
            raise ValueError

    actor = A.remote()
    with pytest.raises(ValueError):
        ray.get(actor.fails.options(max_task_retries=3).remote(attempts.path))
    assert len(attempts()) == 4
    with pytest.raises(ValueError):
        ray.get(actor.fails.options(retry_exceptions=False).remote(attempts.path))
    assert len(attempts()) == 5


def test_a_class_without_restarts_does_not_resend(ray_session, attempts):
    ray = ray_session

    @ray.remote(max_restarts=0, max_task_retries=-1)
    class A:
        def dies(self, path):
            note(path)
            os._exit(1)

    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(A.remote().dies.remote(attempts.path))
    assert len(attempts()) == 1


@pytest.mark.only("mray")
def test_a_restarted_actor_gets_its_arguments_again_although_nobody_else_has_them(ray_session, log_actor, attempts):
    """Ray warns at the creation, and loses them."""
    ray = ray_session
    large = ray.put(b"l" * 500_000)
    small = ray.put("small")

    @ray.remote
    def made():
        return "made"

    actor = log_actor.options(max_restarts=2, max_task_retries=-1).remote(attempts.path, large, small, made.remote(), [ray.put("inside")])
    before = ray.get(actor.value.remote())
    del large, small
    for count in (2, 3):
        os.kill(ray.get(actor.pid.remote()), signals.SIGKILL)
        after = ray.get(actor.value.remote())
        assert after[:3] == before[:3] == (b"l" * 500_000, "small", "made")
        assert ray.get(after[3]) == ["inside"]
        assert attempts() == ["init"] * count


def test_a_constructor_that_dies_uses_up_a_restart(ray_session, attempts):
    ray = ray_session

    @ray.remote(max_restarts=2, max_task_retries=-1)
    class A:
        def __init__(self, path):
            if note(path) < 3:
                os._exit(1)

        def f(self):
            return 1

    assert ray.get(A.remote(attempts.path).f.remote()) == 1
    assert len(attempts()) == 3


def test_a_constructor_that_dies_too_often_is_the_end(ray_session, attempts):
    ray = ray_session

    @ray.remote(max_restarts=1)
    class A:
        def __init__(self, path):
            note(path)
            os._exit(1)

        def f(self):
            return 1

    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(A.remote(attempts.path).f.remote())
    assert len(attempts()) == 2


def test_an_actor_that_was_killed_while_pending_never_starts(ray_session, log_actor, attempts):
    ray = ray_session
    actor = log_actor.options(resources={"custom": 3}, max_restarts=-1).remote(attempts.path) if ray.__name__ == "ray" else None
    if actor is None:
        holder = log_actor.options(resources={"custom": 2}).remote()
        ray.get(holder.pid.remote())
        actor = log_actor.options(resources={"custom": 2}, max_restarts=-1).remote(attempts.path)
    ref = actor.pid.remote()
    ray.kill(actor)
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(ref, timeout=60)
    assert attempts() == []


@pytest.mark.filterwarnings("ignore:This API is deprecated:DeprecationWarning")  # where the actor is in this process
def test_kill_without_no_restart_uses_a_restart_and_the_last_one_is_the_end(ray_session, log_actor, attempts, eventually):
    ray = ray_session
    actor = log_actor.options(max_restarts=1, max_task_retries=-1).remote(attempts.path)
    first = ray.get(actor.pid.remote())
    ray.kill(actor, no_restart=False)
    eventually(lambda: is_gone(first))
    second = ray.get(actor.pid.remote())
    assert ray.get(actor.restarted.remote())
    ray.kill(actor, no_restart=False)
    eventually(lambda: is_gone(second))
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(actor.pid.remote())
    assert attempts() == ["init"] * 2


@pytest.mark.only("mray")
def test_after_a_restart_the_calls_of_each_caller_keep_their_order(ray_session, attempts, eventually):
    """Ray resends what was in flight in any order, if at all."""
    ray = ray_session

    @ray.remote(max_restarts=-1, max_task_retries=-1)
    class Log:
        def __init__(self, path):
            self.file = open(path, "a", buffering=1)  # noqa: SIM115  (closed with the process)
            self.file.write(f"init {os.getpid()}\n")

        def add(self, name, number):
            self.file.write(f"{name} {number}\n")

    @ray.remote(num_cpus=0)
    def calls(log, name):
        ray.get([log.add.remote(name, number) for number in range(3000)])

    log = Log.remote(attempts.path)
    refs = [calls.remote(log, name) for name in "abc"]
    eventually(lambda: len(attempts()) > 600)
    os.kill(int(attempts()[1]), signals.SIGKILL)
    ray.get(refs)
    words = attempts()
    lines = list(zip(words[::2], words[1::2], strict=True))
    starts = [index for index, line in enumerate(lines) if line[0] == "init"]
    assert len(starts) == 2
    for name in "abc":
        lives = [[int(number) for who, number in part if who == name] for part in (lines[: starts[1]], lines[starts[1] :])]
        assert all(life == sorted(set(life)) for life in lives)
        assert set(lives[0]) | set(lives[1]) == set(range(3000))


@pytest.mark.filterwarnings("ignore:This API is deprecated:DeprecationWarning")  # where the actor is in this process
def test_an_actor_knows_whether_it_has_been_restarted_in_its_constructor_too(ray_session):
    ray = ray_session
    context = ray.get_runtime_context

    @ray.remote(max_restarts=1, max_task_retries=-1)
    class A:
        def __init__(self):
            self.restarted = context().was_current_actor_reconstructed

        def info(self):
            return self.restarted, context().was_current_actor_reconstructed, os.getpid()

    actor = A.remote()
    *before, pid = ray.get(actor.info.remote())
    assert before == [False, False]
    os.kill(pid, signals.SIGKILL)
    *after, _pid = ray.get(actor.info.remote())
    assert after == [True, True]


def test_a_call_that_is_queued_while_the_actor_restarts_goes_to_the_new_process(ray_session, log_actor, attempts, tmp_path, eventually):
    ray = ray_session
    gate = tmp_path / "gate"

    @ray.remote(max_restarts=1, max_task_retries=1)
    class A:
        def __init__(self, path, gate):
            if note(path) == 2:
                while not os.path.exists(gate):
                    time.sleep(0.01)

        def pid(self):
            return os.getpid()

    actor = A.remote(attempts.path, str(gate))
    pid = ray.get(actor.pid.remote())
    os.kill(pid, signals.SIGKILL)
    eventually(lambda: len(attempts()) == 2)
    refs = [actor.pid.remote() for _ in range(3)]
    assert ray.wait(refs, timeout=0.1)[0] == []
    gate.touch()
    (again,) = set(ray.get(refs))
    assert again != pid


# ------------------------------------------------------------------------------------------ objects
def test_an_object_outlives_the_process_that_made_it_and_is_not_computed_again(ray_session, attempts, eventually):
    ray = ray_session

    @ray.remote
    def large(path):
        note(path, str(os.getpid()))
        return b"l" * 1_000_000

    ref = large.remote(attempts.path)
    ray.wait([ref])
    os.kill(int(attempts()[0]), signals.SIGKILL)
    eventually(lambda: is_gone(attempts()[0]))
    assert ray.get(ref) == b"l" * 1_000_000
    assert len(attempts()) == 1


@pytest.mark.only("mray")
def test_an_object_whose_memory_somebody_removed_is_lost_and_its_place_named(ray_session):
    """Ray's has no name."""
    ray = ray_session

    @ray.remote
    def large():
        return b"l" * 1_000_000

    @ray.remote
    def length(value):
        return len(value)

    once = large.options(max_retries=0).remote()
    ray.wait([once])
    put = ray.put(b"p" * 1_000_000)
    for lost in (once, put):
        os.unlink(f"/dev/shm{lost._entry.payload[0]}")
        with pytest.raises(ray.exceptions.ObjectLostError, match="another program has removed it") as caught:
            ray.get(lost)
        assert not isinstance(caught.value, ray.exceptions.OwnerDiedError)
        with pytest.raises(ray.exceptions.RayTaskError, match="another program has removed it"):
            ray.get(length.remote(lost))
    assert ray.get(length.remote(large.remote())) == 1_000_000


@pytest.mark.only("mray")
def test_a_task_makes_what_somebody_removed_as_often_again_as_it_may_be_retried(ray_session, tmp_path):
    """Ray's has no name."""
    ray = ray_session

    @ray.remote
    def large():
        with open(tmp_path / "runs", "a") as file:
            file.write("x")
        return b"l" * 1_000_000

    ref = large.options(max_retries=2).remote()
    ray.wait([ref])
    for runs in (2, 3):
        os.unlink(f"/dev/shm{ref._entry.payload[0]}")
        assert ray.get(ref, timeout=60) == b"l" * 1_000_000
        assert len((tmp_path / "runs").read_text()) == runs
    os.unlink(f"/dev/shm{ref._entry.payload[0]}")
    with pytest.raises(ray.exceptions.ObjectLostError, match="another program has removed it"):
        ray.get(ref, timeout=60)


@pytest.mark.only("mray")
def test_an_object_that_went_with_its_session_is_not_said_to_be_removed_by_somebody(fresh, init):
    """Its memory goes when the node is dead, which may be before everybody here knows. (Elsewhere there is no node to kill.)"""
    ray = fresh
    init(num_cpus=1)
    client = ray._api.current.current_backend().client
    put = ray.put(b"p" * 1_000_000)
    cleaned = threading.Event()
    ask = client.process_host.node_lost

    def slowly():
        error = ask()
        cleaned.set()
        time.sleep(1)
        return error

    client.process_host.node_lost = slowly
    os.kill(client.info["node_pid"], signals.SIGKILL)
    assert cleaned.wait(30)
    with pytest.raises(ray.exceptions.NodeDiedError, match="killed by SIGKILL"):
        ray.get(put)


@pytest.fixture(params=["plain", "threaded", "async"])
def failing(request, ray_session):
    """An actor of each kind, with a method that fails and a class of errors to be retried that cannot be asked whether this is one."""
    kind, ray = request.param, ray_session

    def make(answer):
        class Unclear(type):
            def __instancecheck__(cls, _instance):
                raise answer("unclear")

        class Wanted(Exception, metaclass=Unclear):
            pass

        class Actor:
            def _fail(self):
                raise ValueError("of the method")

        fail = Actor._fail
        if kind == "async":

            async def fail(self):
                self._fail()

        Actor.fail = ray.method(retry_exceptions=[Wanted])(fail)
        return ray.remote(max_task_retries=1, max_concurrency=2 if kind == "threaded" else None)(Actor).remote()

    return make


def test_an_error_of_which_it_is_unclear_whether_it_is_to_be_retried_comes_with_the_reason(ray_session, failing):
    with pytest.raises(RuntimeError, match=r"(?s)of the method.*unclear"):
        ray_session.get(failing(RuntimeError).fail.remote(), timeout=60)


@pytest.mark.only("mray")  # Ray answers it as any other error
def test_a_call_that_cannot_be_answered_ends_its_actor(ray_session, failing):
    with pytest.raises(ray_session.exceptions.ActorDiedError):
        ray_session.get(failing(GeneratorExit).fail.remote(), timeout=60)
