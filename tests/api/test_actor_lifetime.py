"""When actors end: the last handle, kill, exit, termination, the death of who made them."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from pathlib import Path

import pytest


def process_is_gone(pid):
    """A condition that is true once the process is gone or only waits to be reaped."""

    def gone():
        try:
            os.kill(pid, 0)  # in one process, pids are not the kernel's
            if not os.path.exists(f"/proc/{pid}"):
                return False
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            return True

    return gone


@pytest.fixture
def pidder(ray):
    class Pidder:
        def pid(self):
            return os.getpid()

        def slow(self, path):
            while not os.path.exists(path):
                time.sleep(0.003)
            return "slow"

        def keep(self, thing):
            self.thing = thing

    return ray.remote(Pidder)


@pytest.fixture
def recorder(ray):
    """An actor that writes down how it ended."""

    class Recorder:
        def __init__(self, path):
            import atexit

            self.path = path
            atexit.register(self.record, "atexit")

        def record(self, word):
            with open(self.path, "a") as file:
                file.write(word + "\n")

        def __ray_shutdown__(self):
            self.record("shutdown")

        def pid(self):
            return os.getpid()

        def exit(self):
            exit_actor()

    exit_actor = ray.actor.exit_actor
    return ray.remote(Recorder)


def test_an_actor_ends_with_its_last_handle(ray_session, pidder, eventually):
    ray = ray_session
    actor = pidder.remote()
    pid = ray.get(actor.pid.remote())
    other = actor
    del actor
    gc.collect()
    assert ray.get(other.pid.remote()) == pid
    del other
    gc.collect()
    eventually(process_is_gone(pid))


def test_a_call_on_a_handle_that_dies_at_once_still_runs(ray_session, pidder):
    assert ray_session.get(pidder.remote().pid.remote()) != os.getpid()


def test_pending_calls_run_before_the_actor_ends(ray_session, pidder, tmp_path, eventually):
    ray = ray_session
    actor = pidder.remote()
    pid = ray.get(actor.pid.remote())
    refs = [actor.slow.remote(str(tmp_path / "go")), actor.pid.remote()]
    del actor
    gc.collect()
    (tmp_path / "go").touch()
    assert ray.get(refs) == ["slow", pid]
    eventually(process_is_gone(pid))


def test_a_handle_in_flight_keeps_the_actor_alive(ray_session, pidder, signal):
    ray = ray_session
    gate = signal()

    @ray.remote
    def late(gate, handles):
        while not ray.get(gate.is_set.remote()):
            time.sleep(0.003)
        return ray.get(handles[0].pid.remote())

    actor = pidder.remote()
    pid = ray.get(actor.pid.remote())
    result = late.remote(gate, [actor])
    del actor
    gc.collect()
    ray.get(gate.send.remote())
    assert ray.get(result) == pid


def test_a_handle_inside_an_object_keeps_the_actor_alive(ray_session, pidder, eventually):
    ray = ray_session
    actor = pidder.remote()
    pid = ray.get(actor.pid.remote())
    ref = ray.put({"handle": actor})
    del actor
    gc.collect()
    assert ray.get(ray.get(ref)["handle"].pid.remote()) == pid
    del ref
    gc.collect()
    eventually(process_is_gone(pid))


def test_a_handle_kept_by_another_actor_keeps_it_alive(ray_session, pidder, eventually):
    ray = ray_session
    kept, keeper = pidder.remote(), pidder.remote()
    pid = ray.get(kept.pid.remote())
    ray.get(keeper.keep.remote([kept]))
    del kept
    gc.collect()
    assert ray.get(ray.get(keeper.__ray_call__.remote(lambda self: self.thing[0])).pid.remote()) == pid
    ray.get(keeper.keep.remote(None))
    gc.collect()
    eventually(process_is_gone(pid))


def test_the_current_actors_own_handle_is_weak(ray_session, eventually):
    ray = ray_session

    @ray.remote
    class Selfish:
        def __init__(self):
            self.me = ray.get_runtime_context().current_actor

        def pid(self):
            return os.getpid()

    actor = Selfish.remote()
    pid = ray.get(actor.pid.remote())
    del actor
    gc.collect()
    eventually(process_is_gone(pid))


def test_options_of_a_method_do_not_keep_the_handle_alive(ray_session, pidder, eventually):
    ray = ray_session
    actor = pidder.remote()
    pid = ray.get(actor.pid.options(num_returns=1).remote())
    gc.disable()
    try:
        del actor
        eventually(process_is_gone(pid))
    finally:
        gc.enable()


def test_kill_ends_an_actor_at_once(ray_session, pidder, tmp_path, eventually):
    ray = ray_session
    actor = pidder.remote()
    pid = ray.get(actor.pid.remote())
    ref = actor.slow.remote(str(tmp_path / "never"))
    ray.kill(actor)
    with pytest.raises(ray.exceptions.ActorDiedError, match="it was killed by `ray.kill`"):
        ray.get(ref)
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(actor.pid.remote())
    eventually(process_is_gone(pid))


@pytest.mark.only("mray", "local")
@pytest.mark.parametrize("where", ["here", "in another actor"])
def test_nobody_is_answered_by_an_actor_that_was_killed_before_it_was_asked(ray_session, where):
    """Nearly so on Ray."""
    ray = ray_session

    @ray.remote(num_cpus=0)
    class A:
        def ping(self):
            return "alive"

        def kill(self, actors):
            ray.kill(actors[0])

    killer = A.remote()
    for _ in range(30):
        actor = A.remote()
        ray.get([actor.ping.remote(), killer.ping.remote()])
        if where == "here":
            ray.kill(actor)
        else:
            ray.get(killer.kill.remote([actor]))
        with pytest.raises(ray.exceptions.ActorDiedError):
            ray.get(actor.ping.remote(), timeout=60)


def test_a_finalizer_may_kill(ray_session, pidder, eventually):
    ray = ray_session

    class Owner:
        def __init__(self):
            self.actor = pidder.remote()

        def __del__(self):
            ray.kill(self.actor)

    for _ in range(20):
        owner = Owner()
        actor = owner.actor
        pid = ray.get(actor.pid.remote())
        owner.itself = owner
        del owner
        refs = [ray.put(number) for number in range(100)]
        gc.collect()
        del refs
        eventually(process_is_gone(pid))
        with pytest.raises(ray.exceptions.ActorDiedError):
            ray.get(actor.pid.remote())


def test_killing_twice_is_harmless(ray_session, pidder):
    actor = pidder.remote()
    ray_session.kill(actor)
    ray_session.kill(actor)
    with pytest.raises(ray_session.exceptions.RayActorError):
        ray_session.get(actor.pid.remote())


def test_a_pending_actor_can_be_killed(ray_session, tmp_path):
    ray = ray_session

    @ray.remote(num_cpus=4)
    class Big:
        def f(self):
            return 1

    first = Big.remote()
    assert ray.get(first.f.remote()) == 1
    second = Big.remote()
    ref = second.f.remote()
    ray.kill(second)
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(ref)


@pytest.mark.parametrize("wrong", ["x", 1, None])
def test_kill_wants_a_handle(ray_session, wrong):
    with pytest.raises(ValueError, match="ray.kill\\(\\) only supported for actors"):
        ray_session.kill(wrong)


def test_kill_runs_neither_atexit_nor_shutdown(ray_session, recorder, tmp_path, eventually):
    ray = ray_session
    path = tmp_path / "end"
    actor = recorder.remote(str(path))
    pid = ray.get(actor.pid.remote())
    ray.kill(actor)
    eventually(process_is_gone(pid))
    assert not path.exists()


def test_the_end_of_the_last_handle_runs_shutdown_and_atexit(ray_session, recorder, tmp_path, eventually):
    ray = ray_session
    path = tmp_path / "end"
    actor = recorder.remote(str(path))
    pid = ray.get(actor.pid.remote())
    del actor
    gc.collect()
    eventually(process_is_gone(pid))
    assert path.read_text().split() == ["shutdown", "atexit"]


def test_terminate_runs_shutdown_and_atexit(ray_session, recorder, tmp_path, eventually):
    ray = ray_session
    path = tmp_path / "end"
    actor = recorder.remote(str(path))
    pid = ray.get(actor.pid.remote())
    actor.__ray_terminate__.remote()
    eventually(process_is_gone(pid))
    assert path.read_text().split() == ["shutdown", "atexit"]
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(actor.pid.remote())


def test_the_call_that_terminates_an_actor_fails_as_exit_actor_does(ray_session, pidder):
    ray = ray_session
    actor = pidder.remote()
    with pytest.raises(ray.exceptions.ActorDiedError, match=r"(?s)its worker process has died.*exit_actor\(\)"):
        ray.get(actor.__ray_terminate__.remote())


def test_sys_exit_in_a_method_ends_the_actor(ray_session):
    ray = ray_session

    @ray.remote(max_restarts=3)
    class Leaves:
        def leave(self):
            raise SystemExit(0)

    actor = Leaves.remote()
    with pytest.raises(ray.exceptions.ActorDiedError, match="its worker process has died"):
        ray.get(actor.leave.remote())
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(actor.leave.remote())


def test_exit_actor_runs_shutdown_and_atexit_and_says_so(ray_session, recorder, tmp_path, eventually):
    ray = ray_session
    path = tmp_path / "end"
    actor = recorder.remote(str(path))
    pid = ray.get(actor.pid.remote())
    with pytest.raises(ray.exceptions.RayActorError, match=r"exit_actor\(\)"):
        ray.get(actor.exit.remote())
    eventually(process_is_gone(pid))
    assert path.read_text().split() == ["shutdown", "atexit"]
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(actor.pid.remote())


def test_exit_actor_cannot_be_caught(ray_session, eventually):
    ray = ray_session
    exit_actor = ray.actor.exit_actor

    @ray.remote
    class Stubborn:
        def exit(self):
            try:
                exit_actor()
            except SystemExit:
                pass
            return "still here"

        def pid(self):
            return os.getpid()

    actor = Stubborn.remote()
    pid = ray.get(actor.pid.remote())
    try:
        ray.get(actor.exit.remote())
    except ray.exceptions.RayActorError:
        pass
    eventually(process_is_gone(pid))


def test_exit_actor_outside_an_actor_is_a_type_error(ray_session):
    ray = ray_session
    with pytest.raises(TypeError, match="exit_actor API is called on a non-actor worker"):
        ray.actor.exit_actor()

    exit_actor = ray.actor.exit_actor

    @ray.remote
    def f():
        exit_actor()

    with pytest.raises(TypeError, match="exit_actor API is called on a non-actor worker"):
        ray.get(f.remote())


def test_an_actor_dies_with_the_worker_that_created_it(ray_session, pidder, eventually):
    ray = ray_session

    @ray.remote
    class Parent:
        def make(self):
            self.child = pidder.remote()
            return self.child, ray.get(self.child.pid.remote())

    parent = Parent.remote()
    child, pid = ray.get(parent.make.remote())
    ray.kill(parent)
    eventually(process_is_gone(pid))
    with pytest.raises(ray.exceptions.ActorDiedError, match="owner has died"):
        ray.get(child.pid.remote())


@pytest.mark.parametrize("kept", ["by nobody", "by a thread"])
@pytest.mark.parametrize("name", [None, "hired"])
def test_a_worker_at_its_last_call_stays_until_its_actors_have_ended(fresh, init, pidder, eventually, name, kept):
    """It needs no GPU of its own meanwhile: the actor has the only one."""
    init(num_cpus=1, num_gpus=1)
    ray = fresh

    @ray.remote(max_calls=1, num_gpus=1)
    def hire():
        actor = pidder.options(name=name, num_gpus=1).remote()
        if kept == "by a thread":
            threading.Thread(target=lambda: (actor, time.sleep(1000)), daemon=True).start()
        return os.getpid(), actor

    pid, actor = ray.get(hire.remote())
    own = ray.get(actor.pid.remote(), timeout=60)
    with pytest.raises(ray.exceptions.GetTimeoutError):
        ray.get(actor.slow.remote("/no/such/file"), timeout=0.5)
    assert not process_is_gone(pid)()
    ray.kill(actor)
    del actor
    eventually(process_is_gone(own))
    eventually(process_is_gone(pid))


@pytest.mark.only("mray")  # Ray warns that it may lose it
def test_what_a_named_actor_was_made_with_is_there_when_it_restarts(fresh, init, eventually):
    """Its maker calls it never, and has let go of it."""
    init(num_cpus=2)
    ray = fresh

    @ray.remote(num_cpus=0, max_restarts=1, max_task_retries=1)
    class Holder:
        def __init__(self, value):
            self.value = value

        def look(self):
            return os.getpid(), len(self.value)

    @ray.remote(num_cpus=0)
    class Caller:
        def take(self, holders):
            (self.holder,) = holders

        def look(self):
            return ray.get(self.holder.look.remote())

    caller = Caller.remote()
    holder = Holder.options(name="holder").remote(ray.put(bytes(1 << 20)))
    ray.get(caller.take.remote([holder]))
    pid, _length = ray.get(caller.look.remote())
    del holder
    gc.collect()
    os.kill(pid, signal.SIGKILL)
    again, length = ray.get(caller.look.remote())
    assert (again != pid, length) == (True, 1 << 20)


def test_a_detached_actor_outlives_who_created_it(ray_session, pidder):
    ray = ray_session

    @ray.remote
    def make():
        actor = pidder.options(name="outlives", lifetime="detached").remote()
        return ray.get(actor.pid.remote())

    pid = ray.get(make.remote())
    gc.collect()
    actor = ray.get_actor("outlives")
    assert ray.get(actor.pid.remote()) == pid
    ray.kill(actor)


@pytest.mark.processes("the kernel ends children of a process")
def test_processes_an_actor_started_end_with_it(ray_session, eventually):
    ray = ray_session

    @ray.remote
    class Spawner:
        def spawn(self):
            import subprocess

            self.child = subprocess.Popen(["sleep", "1000"])
            return self.child.pid

        def pid(self):
            return os.getpid()

    actor = Spawner.remote()
    child, pid = ray.get([actor.spawn.remote(), actor.pid.remote()])
    ray.kill(actor)
    eventually(process_is_gone(pid))
    try:
        eventually(process_is_gone(child), 10)
    finally:
        try:
            os.kill(child, 9)
        except ProcessLookupError:
            pass


def test_an_actor_that_never_got_a_call_ends_too(ray_session, tmp_path, eventually):
    ray = ray_session
    path = tmp_path / "pid"

    @ray.remote
    class Quiet:
        def __init__(self, path):
            with open(path + ".tmp", "w") as file:
                file.write(str(os.getpid()))
            os.rename(path + ".tmp", path)

    actor = Quiet.remote(str(path))
    eventually(path.exists)
    del actor
    gc.collect()
    eventually(process_is_gone(int(path.read_text())))


def test_resources_come_back_when_an_actor_ends(ray_session, eventually):
    ray = ray_session

    @ray.remote(resources={"custom": 2})
    class Holder:
        def f(self):
            return 1

    for _ in range(3):
        actor = Holder.remote()
        assert ray.get(actor.f.remote()) == 1
        assert "custom" not in ray.available_resources() or ray.available_resources()["custom"] < 2
        ray.kill(actor)
    eventually(lambda: ray.available_resources().get("custom") == 2)


@pytest.mark.processes("nothing interrupts a hook that computes")
@pytest.mark.only("mray", "local")  # Ray names the limit, and does not keep to it
def test_a_shutdown_hook_that_takes_too_long_is_ended_with_its_process(fresh, init, monkeypatch, tmp_path, eventually):
    monkeypatch.setenv("RAY_actor_graceful_shutdown_timeout_ms", "500")
    ray = fresh
    init(num_cpus=1)

    @ray.remote
    class Lingers:
        def pid(self):
            return os.getpid()

        def __ray_shutdown__(self):
            (tmp_path / "begun").touch()
            while not (tmp_path / "never").exists():
                time.sleep(0.01)

    actor = Lingers.remote()
    pid = ray.get(actor.pid.remote())
    del actor
    gc.collect()
    eventually(lambda: (tmp_path / "begun").exists())
    eventually(process_is_gone(pid))


def test_a_shutdown_hook_that_raises_does_not_stop_the_rest(ray_session, tmp_path, eventually):
    ray = ray_session
    path = tmp_path / "end"

    @ray.remote
    class A:
        def __init__(self, path):
            import atexit

            atexit.register(lambda: open(path, "w").close())

        def __ray_shutdown__(self):
            raise ValueError("in the hook")

        def f(self):
            return 1

    actor = A.remote(str(path))
    ray.get(actor.f.remote())
    del actor
    gc.collect()
    eventually(path.exists)


def test_an_actor_that_exits_is_dead_at_once_while_what_it_owns_is_held(ray_session):
    ray = ray_session

    @ray.remote
    class A:
        def make(self):
            return [ray.put(7)]

        def bye(self):
            ray.actor.exit_actor()

    actor = A.remote()
    [ref] = ray.get(actor.make.remote())
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(actor.bye.remote(), timeout=30)
    assert ray.get(ref) == 7


class Waiting:
    """An actor whose constructor waits for an argument."""

    def __init__(self, value):
        self.value = value

    def get(self):
        return self.value


def waits_for(ray, gate):
    @ray.remote(num_cpus=0)
    def wait():
        while not os.path.exists(gate):
            time.sleep(0.01)
        return 1

    return wait.remote()


def test_an_actor_is_known_to_others_before_its_arguments_are_there(ray_session, tmp_path):
    ray = ray_session
    gate = tmp_path / "gate"
    actor = ray.remote(Waiting).remote(waits_for(ray, str(gate)))

    @ray.remote
    def use(actors):
        return ray.get(actors[0].get.remote())

    used = use.remote([actor])
    assert ray.wait([used], timeout=1.5) == ([], [used])
    gate.touch()
    assert ray.get(used) == 1


def test_an_actor_whose_arguments_are_not_there_can_be_killed(ray_session, tmp_path):
    ray = ray_session
    gate = tmp_path / "gate"
    argument = waits_for(ray, str(gate))
    actor = ray.remote(Waiting).remote(argument)
    ref = actor.get.remote()
    ray.kill(actor)
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(ref, timeout=30)
    gate.touch()
    ray.get(argument)


@pytest.mark.only("mray", "local")
def test_an_actor_whose_handle_goes_before_its_arguments_come_is_never_made(ray_session, tmp_path, eventually):
    from mray._api.current import current_backend

    ray = ray_session
    gate = tmp_path / "gate"
    argument = waits_for(ray, str(gate))

    def is_known():
        return actor_id in {row["actor_id"] for row in current_backend().query("actors")}

    actor = ray.remote(Waiting).remote(argument)
    actor_id = actor._actor_id.binary()
    assert is_known()
    del actor
    gc.collect()
    eventually(lambda: not is_known())
    gate.touch()
    ray.get(argument)
    assert not is_known()


@pytest.mark.only("mray", "local")
def test_nothing_is_kept_of_actors_that_are_dead(ray_session, eventually):
    from mray._api.current import current_backend

    ray = ray_session
    callers = current_backend().client.actors
    cls = ray.remote(num_cpus=0)(Waiting)
    before = set(callers)
    for i in range(3):
        actor = cls.remote(i)
        assert ray.get(actor.get.remote()) == i
    ray.kill(actor)
    del actor
    gc.collect()
    eventually(lambda: set(callers) <= before)
