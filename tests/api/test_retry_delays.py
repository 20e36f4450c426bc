"""A task or call that has failed rests before it is tried again, and may end meanwhile."""

from __future__ import annotations

import os
import signal as signals
import time
from itertools import pairwise

import pytest

#: Seconds between two attempts where they are counted. An attempt is noted when it begins, so that the next one is no sooner.
DELAY = 0.3
SHORT = {"task_retry_delay_ms": int(DELAY * 1000)}
#: So long that nothing is tried again in a test.
LONG = {"task_retry_delay_ms": 3_600_000}


@pytest.fixture
def attempts(tmp_path):
    """A file with the time of each attempt; ``attempts()`` reads them."""

    class Attempts:
        path = str(tmp_path / "attempts")

        def __call__(self):
            if not os.path.exists(self.path):
                return []
            with open(self.path) as file:
                return [float(line) for line in file]

        def pauses(self):
            times = self()
            return [later - earlier for earlier, later in pairwise(times)]

    return Attempts()


def note(path):
    with open(path, "a") as file:
        file.write(f"{time.monotonic()}\n")


def failing(ray, kind, retries):
    """A call of the kind that notes each attempt in a file, and fails."""

    @ray.remote(max_retries=retries, retry_exceptions=True)
    def task(path):
        note(path)
        raise ValueError("raised")

    @ray.remote(max_retries=retries)
    def death(path):
        note(path)
        os._exit(1)

    @ray.remote(max_retries=retries, retry_exceptions=True)
    def generator(path):
        yield 1
        note(path)
        raise ValueError("raised")

    @ray.remote(max_restarts=-1)
    class Actor:
        @ray.method(max_task_retries=retries, retry_exceptions=True)
        def raises(self, path):
            note(path)
            raise ValueError("raised")

        @ray.method(max_task_retries=retries)
        def dies(self, path):
            note(path)
            os._exit(1)

    if kind == "generator":
        return lambda path: list(generator.remote(path))[-1]
    if kind in ("raises", "dies"):
        actor = Actor.remote()
        return lambda path: getattr(actor, kind).remote(path)
    return {"task": task, "death": death}[kind].remote


@pytest.mark.differs("Ray spends a retry of a call while its actor restarts")
@pytest.mark.parametrize("kind", ["task", "death", "generator", "raises", "dies"])
def test_between_two_attempts_there_is_the_delay(fresh, init, engine, attempts, kind):
    ray = fresh
    init(num_cpus=2, _system_config=SHORT)
    with pytest.raises((ValueError, ray.exceptions.WorkerCrashedError, ray.exceptions.ActorUnavailableError)):
        ray.get(failing(ray, kind, 2)(attempts.path))
    pauses = attempts.pauses()
    assert len(pauses) == 2 or (engine == "ray" and kind == "dies" and len(pauses) == 1)
    assert min(pauses) >= DELAY


@pytest.mark.only("mray", "local")
def test_restarts_after_deaths_in_the_constructor_are_the_delay_apart(fresh, init, attempts):
    ray = fresh
    init(num_cpus=1, _system_config=SHORT)

    @ray.remote(max_restarts=2)
    class Dies:
        def __init__(self, path):
            note(path)
            os._exit(1)

        def f(self):
            return 1

    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(Dies.remote(attempts.path).f.remote())
    pauses = attempts.pauses()
    assert len(pauses) == 2
    assert min(pauses) >= DELAY


@pytest.mark.only("mray", "local")
@pytest.mark.parametrize("kind", ["task", "death", "raises", "dies"])
def test_a_call_that_rests_can_be_cancelled(fresh, init, attempts, eventually, kind):
    ray = fresh
    init(num_cpus=2, _system_config=LONG)
    call = failing(ray, kind, -1)
    ref = call(attempts.path)

    def rests():
        with pytest.raises(ray.exceptions.GetTimeoutError) as raised:
            ray.get(ref, timeout=0.2)
        return "has failed, and is retried soon" in str(raised.value)

    eventually(rests)
    ray.cancel(ref)
    with pytest.raises(ray.exceptions.TaskCancelledError):
        ray.get(ref)
    assert len(attempts()) == 1


@pytest.mark.only("mray", "local")
@pytest.mark.parametrize("kind", ["raises", "dies"])
def test_the_end_of_an_actor_ends_its_calls_that_rest(fresh, init, attempts, eventually, kind):
    ray = fresh
    init(num_cpus=2, _system_config=LONG)

    @ray.remote(max_restarts=-1)
    class Actor:
        @ray.method(max_task_retries=-1, retry_exceptions=True)
        def raises(self, path):
            note(path)
            raise ValueError("raised")

        @ray.method(max_task_retries=-1)
        def dies(self, path):
            note(path)
            os._exit(1)

        def ready(self):
            return True

    actor = Actor.remote()
    ref = getattr(actor, kind).remote(attempts.path)
    eventually(attempts)
    ray.kill(actor)
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(ref)
    assert len(attempts()) == 1


@pytest.mark.only("mray", "local")
@pytest.mark.parametrize("kind", ["task", "death", "raises", "dies"])
def test_a_session_ends_although_something_rests(fresh, init, attempts, eventually, kind):
    ray = fresh
    init(num_cpus=2, _system_config=LONG)
    call = failing(ray, kind, -1)
    ref = call(attempts.path)
    eventually(attempts)
    assert ray.wait([ref], timeout=0.2) == ([], [ref])
    ray.shutdown()
    assert len(attempts()) == 1


@pytest.mark.only("mray", "local")
def test_a_task_that_rests_holds_no_cpu_and_others_run(fresh, init, attempts, eventually):
    ray = fresh
    init(num_cpus=1, _system_config=LONG)
    rests = failing(ray, "task", -1)
    ref = rests(attempts.path)
    eventually(attempts)
    assert ray.get([ray.remote(lambda: 1).remote() for _ in range(3)]) == [1, 1, 1]
    eventually(lambda: ray.available_resources().get("CPU") == 1)
    ray.cancel(ref)


@pytest.mark.only("mray", "local")
@pytest.mark.parametrize("kind", ["task", "raises", "dies"])
def test_a_worker_that_has_done_its_work_stays_for_its_calls_that_rest(fresh, init, attempts, eventually, kind):
    ray = fresh
    init(num_cpus=2, _system_config=SHORT)

    class Actor:
        def raises(self, path):
            note(path)
            raise ValueError("raised")

        def dies(self, path):
            note(path)
            os._exit(1)

    def fails(path):
        note(path)
        raise ValueError("raised")

    actor = ray.remote(max_restarts=-1, max_task_retries=2)(Actor).remote()
    function = ray.remote(max_retries=2, retry_exceptions=True)(fails)

    @ray.remote(max_calls=1)
    def asks(path, actor):
        if kind == "task":
            function.remote(path)
        else:
            getattr(actor, kind).options(retry_exceptions=True).remote(path)

    ray.get(asks.remote(attempts.path, actor))
    eventually(lambda: len(attempts()) == 3)


@pytest.mark.only("mray")
@pytest.mark.parametrize("restart", ["works", "fails"])
def test_a_call_to_an_actor_that_restarts_waits_until_the_restart_is_over(fresh, init, tmp_path, restart):
    ray = fresh
    init(num_cpus=2, _system_config=LONG)
    path = tmp_path / "held back"

    @ray.remote(max_restarts=1)
    class Slow:
        def __init__(self):
            again = path.exists()
            while path.exists():
                time.sleep(0.01)
            if again and restart == "fails":
                raise ValueError("no second start")

        def pid(self):
            return os.getpid()

    actor = Slow.remote()
    pid = ray.get(actor.pid.remote())
    path.touch()
    os.kill(pid, signals.SIGKILL)
    refs = [actor.pid.remote() for _ in range(2)]  # until this process has heard of the death
    while not ray.wait(refs[-1:], timeout=0.2)[1]:
        refs.append(actor.pid.remote())
    *early, held = refs
    for ref in early:
        with pytest.raises(ray.exceptions.ActorUnavailableError):
            ray.get(ref)
    path.unlink()
    with pytest.raises(ray.exceptions.ActorUnavailableError if restart == "works" else ray.exceptions.ActorDiedError):
        ray.get(held)
    if restart == "works":
        assert ray.get(actor.pid.remote()) != pid


@pytest.mark.only("mray", "local")
def test_the_delay_can_be_set_and_left_out(fresh, init, attempts, monkeypatch):
    ray = fresh
    monkeypatch.setenv("MRAY_TASK_RETRY_DELAY_MS", "-1")
    with pytest.raises(ValueError, match="task_retry_delay_ms must not be negative, got -1"):
        init(num_cpus=1)
    monkeypatch.setenv("MRAY_TASK_RETRY_DELAY_MS", "0")
    init(num_cpus=1)
    with pytest.raises(ValueError, match="raised"):
        ray.get(failing(ray, "task", 3)(attempts.path))
    assert len(attempts()) == 4
