"""Restarts of actors and retries of their methods."""

from __future__ import annotations

import os
import signal as signals
import time

import pytest


@pytest.fixture
def mortal(ray):
    class Mortal:
        def __init__(self, path=None):
            self.calls = 0
            if path is not None:
                with open(path, "a") as file:
                    file.write("i")

        def pid(self):
            return os.getpid()

        def count(self):
            self.calls += 1
            return self.calls

        def die(self):
            os.kill(os.getpid(), signals.SIGKILL)

        def die_until(self, path, times):
            with open(path, "a") as file:
                file.write("x")
            if os.path.getsize(path) <= times:
                os._exit(1)
            return os.path.getsize(path)

        def raise_until(self, path, times):
            with open(path, "a") as file:
                file.write("x")
            if os.path.getsize(path) <= times:
                raise ValueError("again")
            return os.path.getsize(path)

        def restarted(self):
            return context().was_current_actor_reconstructed

        def hang(self):
            time.sleep(10_000)

    context = ray.get_runtime_context
    return ray.remote(Mortal)


def get_when_up(ray, eventually, call):
    """Result of `call()` once the actor is back."""
    results = []

    def up():
        try:
            results.append(ray.get(call()))
        except ray.exceptions.ActorUnavailableError:
            return False
        return True

    eventually(up)
    return results[0]


def test_an_actor_restarts_as_often_as_asked(ray_session, mortal, tmp_path, eventually):
    ray = ray_session
    path = tmp_path / "inits"
    actor = mortal.options(max_restarts=2).remote(str(path))
    pids = []
    for _ in range(3):
        pids.append(get_when_up(ray, eventually, actor.pid.remote))
        with pytest.raises(ray.exceptions.RayActorError):
            ray.get(actor.die.remote())
    assert len(set(pids)) == 3
    assert path.read_text() == "iii"
    eventually(lambda: dead(ray, actor))


def dead(ray, actor):
    try:
        ray.get(actor.pid.remote())
    except ray.exceptions.ActorDiedError:
        return True
    except ray.exceptions.ActorUnavailableError:
        return False
    return False


def test_state_is_new_after_a_restart(ray_session, mortal, eventually):
    ray = ray_session
    actor = mortal.options(max_restarts=1).remote()
    assert ray.get([actor.count.remote(), actor.count.remote()]) == [1, 2]
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(actor.die.remote())
    assert get_when_up(ray, eventually, actor.count.remote) == 1


def test_without_restarts_an_actor_stays_dead(ray_session, mortal):
    ray = ray_session
    actor = mortal.remote()
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(actor.die.remote())
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(actor.pid.remote())


def test_a_call_in_flight_fails_with_unavailable_while_the_actor_restarts(ray_session, mortal):
    ray = ray_session
    actor = mortal.options(max_restarts=-1).remote()
    pid = ray.get(actor.pid.remote())
    ref = actor.hang.remote()
    os.kill(pid, signals.SIGKILL)
    with pytest.raises(ray.exceptions.ActorUnavailableError):
        ray.get(ref)


def test_calls_are_resent_to_the_new_actor_if_asked(ray_session, mortal, tmp_path):
    ray = ray_session
    actor = mortal.options(max_restarts=-1, max_task_retries=-1).remote()
    assert ray.get(actor.die_until.remote(str(tmp_path / "n"), 3)) == 4


@pytest.mark.differs("Ray resends what was in flight in any order, if at all")
def test_resent_calls_keep_their_order(ray_session, tmp_path, engine):
    ray = ray_session

    @ray.remote(max_restarts=-1, max_task_retries=-1)
    class Log:
        def __init__(self):
            self.seen = []

        def add(self, x, path=None):
            if path and not os.path.exists(path):
                open(path, "w").close()
                os._exit(1)
            self.seen.append(x)
            return list(self.seen)

    log = Log.remote()
    log.add.remote(0, str(tmp_path / "once"))
    refs = [log.add.remote(i) for i in range(1, 10)]
    seen = ray.get(refs[-1])
    assert seen[-1] == 9
    assert engine == "ray" or seen == list(range(10))


def test_retries_are_counted(ray_session, mortal, tmp_path):
    ray = ray_session
    actor = mortal.options(max_restarts=-1, max_task_retries=1).remote()
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(actor.die_until.remote(str(tmp_path / "n"), 5))
    assert (tmp_path / "n").read_text() == "xx"


def test_method_options_beat_the_classes(ray_session, tmp_path):
    ray = ray_session

    @ray.remote(max_restarts=-1, max_task_retries=0)
    class A:
        @ray.method(max_task_retries=5)
        def die_until(self, path, times):
            with open(path, "a") as file:
                file.write("x")
            if os.path.getsize(path) <= times:
                os._exit(1)
            return os.path.getsize(path)

    assert ray.get(A.remote().die_until.remote(str(tmp_path / "n"), 3)) == 4


def test_errors_of_methods_are_retried_on_request(ray_session, tmp_path):
    ray = ray_session

    @ray.remote
    class A:
        @ray.method(max_task_retries=3, retry_exceptions=[ValueError])
        def listed(self, path, times):
            return attempt(path, times)

        @ray.method(max_task_retries=3, retry_exceptions=[KeyError])
        def other(self, path, times):
            return attempt(path, times)

        @ray.method(max_task_retries=2, retry_exceptions=True)
        def always(self, path, times):
            return attempt(path, times)

    def attempt(path, times):
        with open(path, "a") as file:
            file.write("x")
        if os.path.getsize(path) <= times:
            raise ValueError("again")
        return os.path.getsize(path)

    actor = A.remote()
    assert ray.get(actor.listed.remote(str(tmp_path / "a"), 3)) == 4
    with pytest.raises(ValueError, match="again"):
        ray.get(actor.other.remote(str(tmp_path / "b"), 3))
    assert (tmp_path / "b").read_text() == "x"
    with pytest.raises(ValueError, match="again"):
        ray.get(actor.always.remote(str(tmp_path / "c"), 10))
    assert (tmp_path / "c").read_text() == "xxx"


@pytest.mark.filterwarnings("ignore:This API is deprecated:DeprecationWarning")  # where the actor is in this process
def test_an_actor_knows_that_it_was_restarted(ray_session, mortal, eventually):
    ray = ray_session
    actor = mortal.options(max_restarts=1).remote()
    assert ray.get(actor.restarted.remote()) is False
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(actor.die.remote())
    assert get_when_up(ray, eventually, actor.restarted.remote) is True


def test_kill_without_no_restart_restarts(ray_session, mortal, eventually):
    ray = ray_session
    actor = mortal.options(max_restarts=1).remote()
    pid = ray.get(actor.pid.remote())
    ray.kill(actor, no_restart=False)
    eventually(lambda: not os.path.exists(f"/proc/{pid}"))
    assert get_when_up(ray, eventually, actor.pid.remote) != pid


def test_kill_ends_an_actor_that_may_restart(ray_session, mortal, eventually):
    ray = ray_session
    actor = mortal.options(max_restarts=-1).remote()
    ray.get(actor.pid.remote())
    ray.kill(actor)
    eventually(lambda: dead(ray, actor))


def test_exit_actor_is_final_even_with_restarts_left(ray_session):
    ray = ray_session
    exit_actor = ray.actor.exit_actor

    @ray.remote(max_restarts=5)
    class A:
        def exit(self):
            exit_actor()

        def f(self):
            return 1

    actor = A.remote()
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(actor.exit.remote())
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(actor.f.remote())


def test_a_failing_constructor_is_not_retried(ray_session, tmp_path):
    ray = ray_session

    @ray.remote(max_restarts=3)
    class Fails:
        def __init__(self, path):
            with open(path, "a") as file:
                file.write("x")
            raise ValueError("constructor")

        def f(self):
            return 1

    actor = Fails.remote(str(tmp_path / "n"))
    with pytest.raises(ray.exceptions.RayActorError, match="constructor"):
        ray.get(actor.f.remote())
    assert (tmp_path / "n").read_text() == "x"


@pytest.mark.parametrize("retries", [1, 3])
@pytest.mark.processes("its processes die")
def test_retries_end_although_the_actor_is_restarted_without_end(ray_session, tmp_path, retries):
    ray = ray_session

    @ray.remote(num_cpus=0, max_restarts=-1)
    class Mortal:
        def __init__(self, path):
            with open(path, "a") as file:
                file.write("x")
            if os.path.getsize(path) > 1:
                os._exit(1)

        def ready(self):
            return True

        def die(self):
            os._exit(1)

    actor = Mortal.remote(str(tmp_path / "starts"))
    assert ray.get(actor.ready.remote())
    with pytest.raises(ray.exceptions.ActorUnavailableError):
        ray.get(actor.die.options(max_task_retries=retries).remote(), timeout=60)
    ray.kill(actor)


@pytest.mark.processes("its processes die")
def test_a_call_that_is_made_while_restarts_fail_keeps_its_retries(ray_session, tmp_path, eventually):
    ray = ray_session
    starts = tmp_path / "starts"

    @ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=2)
    class Mortal:
        def __init__(self, path):
            with open(path, "a") as file:
                file.write("x")
            if 1 < os.path.getsize(path) < 7:
                os._exit(1)

        def ready(self):
            return True

        def die(self):
            os._exit(1)

    actor = Mortal.remote(str(starts))
    assert ray.get(actor.ready.remote())
    actor.die.options(max_task_retries=0).remote()
    eventually(lambda: starts.stat().st_size > 1)
    assert ray.get(actor.ready.remote(), timeout=60)


def test_a_named_actor_keeps_its_name_over_a_restart(ray_session, mortal, eventually):
    ray = ray_session
    actor = mortal.options(name="phoenix", max_restarts=1).remote()
    pid = ray.get(actor.pid.remote())
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(actor.die.remote())
    found = ray.get_actor("phoenix")
    assert get_when_up(ray, eventually, found.pid.remote) != pid


def test_a_borrower_of_a_handle_sees_the_restart_too(ray_session, mortal, eventually):
    ray = ray_session
    actor = mortal.options(max_restarts=1, max_task_retries=-1).remote()
    pid = ray.get(actor.pid.remote())

    @ray.remote
    def kill_and_ask(actor, pid):
        os.kill(pid, signals.SIGKILL)
        return ray.get(actor.pid.remote())

    assert ray.get(kill_and_ask.remote(actor, pid)) != pid


# -------------------------------------------------------------------------------- calls while an actor is being restarted
@pytest.fixture
def held_back(ray_session, tmp_path):
    """An actor, its pid, and the file whose removal lets its next constructor return."""
    ray = ray_session
    path = tmp_path / "held back"

    @ray.remote(max_restarts=-1, num_cpus=0)
    class Slow:
        def __init__(self):
            while path.exists():
                time.sleep(0.01)

        def pid(self, _argument=None):
            return os.getpid()

        def hang(self):
            time.sleep(10_000)

    actor = Slow.remote()
    pid = ray.get(actor.pid.remote())
    path.touch()
    yield actor, pid, path
    path.unlink(missing_ok=True)


@pytest.mark.processes("an actor's process is killed")
@pytest.mark.differs("Ray keeps the call of whoever has not called the actor before until it is restarted")
@pytest.mark.parametrize("pause", [0, 0.2])
@pytest.mark.parametrize("caller", ["driver", "task", "actor"])
def test_a_call_after_the_death_fails_while_the_actor_is_restarted(ray_session, held_back, caller, pause, engine):
    ray = ray_session
    actor, pid, _path = held_back
    get, unavailable, timed_out = ray.get, ray.exceptions.ActorUnavailableError, ray.exceptions.GetTimeoutError

    def end_and_ask(actor):
        os.kill(pid, signals.SIGKILL)
        time.sleep(pause)
        try:
            return get(actor.pid.remote(), timeout=5)
        except (unavailable, timed_out) as error:
            return type(error).__name__

    class Caller:
        def ask(self, actor):
            return end_and_ask(actor)

    if caller == "driver":
        answer = end_and_ask(actor)
    elif caller == "task":
        answer = ray.get(ray.remote(num_cpus=0)(end_and_ask).remote(actor))
    else:
        answer = ray.get(ray.remote(num_cpus=0)(Caller).remote().ask.remote(actor))
    if engine == "ray" and caller != "driver":
        assert answer in ("ActorUnavailableError", "GetTimeoutError")
    else:
        assert answer == "ActorUnavailableError"


@pytest.mark.processes("an actor's process is killed")
def test_the_error_says_that_the_actor_is_restarting(ray_session, held_back, eventually):
    ray = ray_session
    actor, pid, _path = held_back
    os.kill(pid, signals.SIGKILL)

    def says_so():
        with pytest.raises(ray.exceptions.ActorUnavailableError, match="The actor is temporarily unavailable: ") as raised:
            ray.get(actor.pid.remote())
        return "The actor is restarting." in str(raised.value)

    eventually(says_so)


@pytest.mark.only("mray")
def test_calls_before_the_death_is_heard_of_fail_as_soon_as_it_is(ray_session, held_back):
    ray = ray_session
    from mray._api.current import current_backend

    actor, pid, _path = held_back
    in_flight = actor.hang.remote()
    node = current_backend().client.info["node_pid"]
    os.kill(node, signals.SIGSTOP)
    try:
        os.kill(pid, signals.SIGKILL)
        # The caller reads that its connection to the actor has ended; of the actor itself it can hear nothing yet.
        assert ray.wait([in_flight], timeout=0.3) == ([], [in_flight])
        refs = [actor.pid.remote() for _ in range(3)]
        assert ray.wait(refs, timeout=0.1) == ([], refs)
    finally:
        os.kill(node, signals.SIGCONT)
    for ref in (in_flight, *refs):
        with pytest.raises(ray.exceptions.ActorUnavailableError):
            ray.get(ref)


@pytest.mark.processes("an actor's process is killed")
@pytest.mark.parametrize("order", ["called before the death", "called after it"])
@pytest.mark.parametrize("outcome", ["arguments come later", "arguments come first"])
def test_a_call_that_waits_for_arguments_meets_the_actor_as_it_is_then(ray_session, held_back, tmp_path, order, outcome, eventually):
    ray = ray_session
    actor, pid, path = held_back
    go = tmp_path / "go"

    @ray.remote(num_cpus=0)
    def argument():
        while not go.exists():
            time.sleep(0.01)

    ref = actor.pid.remote(argument.remote()) if order == "called before the death" else None
    os.kill(pid, signals.SIGKILL)
    while ref is None:
        try:
            ray.get(actor.pid.remote())
        except ray.exceptions.ActorUnavailableError:
            ref = actor.pid.remote(argument.remote())
    if outcome == "arguments come first":
        time.sleep(0.5)  # so that Ray's caller has heard of the death
        go.touch()
        with pytest.raises(ray.exceptions.ActorUnavailableError):
            ray.get(ref)
    else:
        path.unlink()
        # Another caller asks, for this one's calls keep their order.
        get = ray.get
        other = ray.remote(num_cpus=0)(lambda actor: get(actor.pid.remote()))
        get_when_up(ray, eventually, lambda: other.remote(actor))
        go.touch()
        assert ray.get(ref) != pid


@pytest.mark.processes("an actor's process ends")
def test_calls_made_before_an_actor_was_there_at_all_wait_for_the_process_that_is_its_first(ray_session, tmp_path):
    ray = ray_session
    path = tmp_path / "begun"

    @ray.remote(max_restarts=-1)
    class Stumbles:
        def __init__(self):
            if not path.exists():
                path.touch()
                os._exit(1)

        def f(self):
            return "there"

    assert ray.get(Stumbles.remote().f.remote()) == "there"
