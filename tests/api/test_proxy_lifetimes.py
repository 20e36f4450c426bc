"""Remote variables: a target lives as long as a variable of it does, wherever that is, and who waits for the dead is told."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

from mray.proxy import InterpreterDiedError, IRemoteInterpreter, RemoteInterpreterFactory


@pytest.fixture
def rif(ray_session: ModuleType) -> RemoteInterpreterFactory:
    return RemoteInterpreterFactory(ray_session)


@pytest.fixture
def env(rif: RemoteInterpreterFactory, request: pytest.FixtureRequest) -> Iterator[IRemoteInterpreter]:
    yield rif.create(num_cpus=0)
    request.node.funcargs.pop("env")


class Watched:
    """Writes when it ends."""

    def __init__(self, log: list[str], name: str = "it") -> None:
        self.log = log
        self.name = name
        self.value = 5

    def __del__(self) -> None:
        self.log.append(self.name)


@pytest.fixture
def watched(
    env: IRemoteInterpreter, eventually: Callable[..., None], request: pytest.FixtureRequest
) -> Iterator[tuple[Any, Callable[[str], bool], Callable[[str], None]]]:
    """Makes an object with this name; whether it has ended; waits until it has."""
    log = env.put([])
    make = env.put(Watched)

    def ended(name: str) -> bool:
        gc.collect()
        return name in log.fetch()

    yield (lambda name: make(log, name)), ended, lambda name: eventually(lambda: ended(name))
    request.node.funcargs.pop("watched")


def test_a_target_ends_with_its_last_variable(watched: Any) -> None:
    make, ended, wait_ended = watched
    x = make("x")
    attribute = x.value
    assert attribute.fetch() == 5
    assert not ended("x")
    del x
    wait_ended("x")
    assert attribute.fetch() == 5


def test_a_target_stays_until_the_steps_that_use_it_are_done(watched: Any, env: IRemoteInterpreter) -> None:
    make, _ended, wait_ended = watched
    total = make("x").value + make("y").value
    for _ in range(20):
        total = total + 1
    assert total.fetch() == 30
    wait_ended("x")
    wait_ended("y")


def test_a_name_keeps_what_no_variable_keeps(watched: Any, env: IRemoteInterpreter) -> None:
    make, ended, wait_ended = watched
    env["kept"] = make("x")
    assert not ended("x")
    assert env["kept"].value.fetch() == 5
    del env["kept"]
    wait_ended("x")


def test_a_variable_in_a_task_keeps_its_target(watched: Any, rif: RemoteInterpreterFactory, signal: Any) -> None:
    ray = rif.ray
    make, ended, wait_ended = watched
    gate = signal()

    @ray.remote(num_cpus=0)
    def use(box: Any, gate: Any) -> Any:
        import time

        while not ray.get(gate.is_set.remote()):
            time.sleep(0.01)
        return box[0].value.fetch()

    result = use.remote([make("x")], gate)
    assert not ended("x")
    ray.get(gate.send.remote())
    assert ray.get(result) == 5
    wait_ended("x")


def test_a_variable_in_an_object_keeps_its_target(watched: Any, rif: RemoteInterpreterFactory) -> None:
    ray = rif.ray
    make, ended, wait_ended = watched
    ref = ray.put([make("x")])
    assert not ended("x")
    for _ in range(2):
        (again,) = ray.get(ref)
        assert again.value.fetch() == 5
        del again
        assert not ended("x")
    del ref
    wait_ended("x")


def test_a_variable_that_an_actor_keeps_keeps_its_target_until_the_actor_dies(watched: Any, rif: RemoteInterpreterFactory) -> None:
    ray = rif.ray
    make, ended, wait_ended = watched

    @ray.remote(num_cpus=0, max_restarts=0)
    class Keeper:
        def keep(self, var: Any) -> int:
            self.var = var
            self.more = var.value + 1
            return os.getpid()

        def use(self) -> Any:
            return self.var.value.fetch(), self.more.fetch()

    keeper = Keeper.remote()
    pid = ray.get(keeper.keep.remote(make("x")))
    assert not ended("x")
    assert ray.get(keeper.use.remote()) == (5, 6)
    os.kill(pid, signal.SIGKILL)
    wait_ended("x")


def test_a_variable_in_another_interpreter_keeps_its_target(watched: Any, rif: RemoteInterpreterFactory) -> None:
    make, ended, wait_ended = watched
    other = rif.create(num_cpus=0)

    class Box:
        def __init__(self, var: Any) -> None:
            self.var = var

    there = other.put(Box(make("x")))
    assert hasattr(there, "var")
    assert not ended("x")
    assert other.run(lambda box: box.var.value.fetch(), (there,)).fetch() == 5
    other.destroy()
    wait_ended("x")


def test_what_a_thread_made_ends_like_anything(watched: Any, env: IRemoteInterpreter) -> None:
    make, ended, wait_ended = watched
    made: list[Any] = []
    thread = threading.Thread(target=lambda: made.append(make("x")))
    thread.start()
    thread.join()
    assert not ended("x")
    assert made[0].value.fetch() == 5
    made.clear()
    wait_ended("x")


def test_thousands_of_variables_leave_nothing(env: IRemoteInterpreter, eventually: Any) -> None:
    x = env.put(0)
    for _ in range(3000):
        x = x + 1
    assert x.fetch() == 3000
    eventually(lambda: env.status()["variables"] == 1)


# -------------------------------------------------------------------------------------------- deaths
def test_who_waits_for_an_interpreter_that_dies_is_told(rif: RemoteInterpreterFactory, eventually: Any) -> None:
    env = rif.create(name="doomed", num_cpus=0)
    x = env.put(1)
    ready = env.put([])
    told: list[BaseException] = []

    @env.function
    def wait_for_ever(ready: list[Any]) -> None:
        ready.append(1)
        threading.Event().wait()

    def wait() -> None:
        try:
            wait_for_ever(ready).fetch()
        except InterpreterDiedError as error:
            told.append(error)

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    eventually(lambda: len(ready) == 3)
    os.kill(env.status()["pid"], signal.SIGKILL)
    for thread in threads:
        thread.join()
    assert len(told) == 3
    assert "'doomed'" in str(told[0]) and env.id[:5] in str(told[0])
    with pytest.raises(InterpreterDiedError, match="doomed"):
        x.fetch()
    with pytest.raises(InterpreterDiedError):
        (x + 1).fetch()
    with pytest.raises(InterpreterDiedError):
        env.instance_names()


def test_an_interpreter_that_waits_for_one_that_dies_is_told(rif: RemoteInterpreterFactory, eventually: Any) -> None:
    a, b = rif.create(num_cpus=0), rif.create(num_cpus=0)
    started = b.put([])

    @b.function
    def wait_for_ever(started: list[Any]) -> None:
        started.append(1)
        threading.Event().wait()

    pid = b.status()["pid"]
    never = wait_for_ever(started)
    at_a = a.put(1) + never
    waiter = threading.Thread(target=lambda: eventually(lambda: b.status()["streams"] >= 1))
    waiter.start()
    waiter.join()
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(Exception, match="died"):
        at_a.fetch()
    assert a.put(1).fetch() == 1


def test_use_after_destroy_names_the_interpreter(rif: RemoteInterpreterFactory) -> None:
    env = rif.create(name="short", num_cpus=0)
    x = env.put(1)
    assert x.fetch() == 1
    env.destroy()
    for use in (x.fetch, lambda: env.put(2).fetch()):
        with pytest.raises(InterpreterDiedError, match="'short'.* it was destroyed"):
            use()


def test_an_interpreter_ends_with_the_last_that_has_it(rif: RemoteInterpreterFactory, eventually: Any) -> None:
    env = rif.create(num_cpus=0)
    pid = env.status()["pid"]
    x = env.put(1)
    del env
    assert x.fetch() == 1
    del x

    def gone() -> bool:
        gc.collect()
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False

    eventually(gone)


def test_steps_that_nobody_waited_for_are_sent_before_the_program_ends(run_program: Any) -> None:
    program = """
        import pathlib, sys
        import ENGINE as ray
        from mray.proxy import RemoteInterpreterFactory

        if __name__ == "__main__":
            ray.init(num_cpus=1)
            env = RemoteInterpreterFactory(ray).create(num_cpus=0)
            env.get_host()
            path = env.put(pathlib.Path)(sys.argv[1])
            path.write_text("written")
    """
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        run_program(program, f"{directory}/out")
        with open(f"{directory}/out") as file:
            assert file.read() == "written"


def test_an_interpreter_is_not_restarted(rif: RemoteInterpreterFactory) -> None:
    with pytest.raises(ValueError, match="cannot be restarted"):
        rif.create(num_cpus=0, max_restarts=1)
    rif.create(num_cpus=0, max_restarts=0).put(1).fetch()


def test_variables_that_outlive_their_session_start_no_other(fresh: ModuleType) -> None:
    fresh.init(num_cpus=1, logging_level="ERROR")
    env = RemoteInterpreterFactory(fresh).create(num_cpus=0)
    kept, ends = env.put([1]), env.put([2])
    assert kept.fetch() == [1]
    fresh.shutdown()
    del ends  # another thread is to tell the interpreter
    kept.append(2)  # nobody waits for this step
    del kept, env
    gc.collect()
    while any(thread.name == "proxy sender" for thread in threading.enumerate()):
        threading.Event().wait(0.01)
    assert not fresh.is_initialized()
