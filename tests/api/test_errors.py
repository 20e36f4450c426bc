"""Errors: what `get` raises, what it is an instance of, what its text says."""

from __future__ import annotations

import gc
import logging
import os
import re
import sys
import time

import pytest


def scrubbed(text: str) -> list[str]:
    """Lines of a remote traceback without numbers, paths and colours, carets left out."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    text = re.sub(r"pid=\d+", "pid=PID", text)
    text = re.sub(r"ip=[\d.]+", "ip=IP", text)
    text = re.sub(r"actor_id=[0-9a-f]+", "actor_id=ID", text)
    text = re.sub(r"repr=<.*? object at 0x[0-9a-f]+>", "repr=REPR", text)
    text = re.sub(r'File ".*?", line \d+', "File FILE, line N", text)
    return [line for line in text.strip().splitlines() if not re.fullmatch(r"\s*[\^~]+\s*", line)]


class CustomError(Exception):
    def __init__(self, code, text):
        super().__init__(code, text)
        self.code = code
        self.text = text


def fails_with(ray, make):
    """Ref of a task that raises what `make()` makes."""

    @ray.remote(max_retries=0)
    def f():
        raise make()

    return f.remote()


# ------------------------------------------------------------------------------------------ dual classes
def test_a_tasks_error_is_both_ray_task_error_and_its_cause(ray_session):
    ray = ray_session
    with pytest.raises(ValueError, match="text") as caught:
        ray.get(fails_with(ray, lambda: ValueError("text")))
    error = caught.value
    assert isinstance(error, ray.exceptions.RayTaskError)
    assert isinstance(error, ray.exceptions.RayError)
    assert type(error).__name__ == "RayTaskError(ValueError)"
    assert type(error.cause) is ValueError
    assert error.args == (error.cause,)


def test_attributes_of_the_cause_are_there(ray_session):
    ray = ray_session

    class Special(Exception):
        def __init__(self, code, text):
            super().__init__(code, text)
            self.code = code

    with pytest.raises(ray.exceptions.RayTaskError) as caught:
        ray.get(fails_with(ray, lambda: Special(7, "t")))
    assert caught.value.code == 7
    assert caught.value.cause.code == 7


class Burden:
    """Captured by a class of errors."""


def test_classes_of_errors_that_a_call_has_made_go_with_the_errors(ray_session, eventually):
    def fail():
        burden = Burden()

        class OwnError(Exception):
            def name(self):
                return type(burden).__name__

        @ray_session.remote
        def failing():
            raise OwnError("text")

        with pytest.raises(OwnError, match="text") as caught:
            ray_session.get(failing.remote())
        assert caught.value.name() == "Burden"

    for _ in range(5):
        fail()
    eventually(lambda: gc.collect() is None or not any(type(each).__name__ == "Burden" for each in gc.get_objects()))


def test_a_dual_error_survives_another_journey(ray_session):
    ray = ray_session
    with pytest.raises(KeyError) as caught:
        ray.get(fails_with(ray, lambda: KeyError("k")))

    @ray.remote
    def same(x):
        return x

    back = ray.get(same.remote([caught.value]))[0]
    assert isinstance(back, KeyError)
    assert isinstance(back, ray.exceptions.RayTaskError)
    assert str(back) == str(caught.value)


def test_the_cause_can_be_had_in_both_ways(ray_session):
    ray = ray_session
    with pytest.raises(ray.exceptions.RayTaskError) as caught:
        ray.get(fails_with(ray, lambda: OSError(2, "gone")))
    error = caught.value
    assert isinstance(error.as_instanceof_cause(), OSError)
    assert isinstance(error.make_dual_exception_instance() if hasattr(error, "make_dual_exception_instance") else error, OSError)


def test_the_text_of_an_error_has_the_remote_traceback(ray_session):
    ray = ray_session

    @ray.remote
    def divides():
        return inner()

    def inner():
        return 1 / 0

    with pytest.raises(ZeroDivisionError) as caught:
        ray.get(divides.remote())
    assert scrubbed(str(caught.value)) == [
        "ray::divides() (pid=PID, ip=IP)",
        "  File FILE, line N, in divides",
        "    return inner()",
        "  File FILE, line N, in inner",
        "    return 1 / 0",
        "ZeroDivisionError: division by zero",
    ]


def test_the_text_of_an_actors_error_names_the_actor(ray_session):
    ray = ray_session

    @ray.remote
    class Fails:
        def f(self):
            raise ValueError("in f")

        def __repr__(self):
            return "MyRepr"

    actor = Fails.remote()
    with pytest.raises(ValueError, match="in f") as caught:
        ray.get(actor.f.remote())
    first = scrubbed(str(caught.value))[0]
    assert first.startswith("ray::Fails.f() (pid=PID, ip=IP, actor_id=ID, repr=MyRepr")
    assert actor._actor_id.hex() in str(caught.value)


def test_a_nested_error_tells_both_stories(ray_session):
    ray = ray_session

    @ray.remote
    def inner():
        raise KeyError("deep")

    @ray.remote
    def outer():
        return ray.get(inner.remote())

    with pytest.raises(KeyError) as caught:
        ray.get(outer.remote())
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(caught.value))
    assert text.startswith("ray::outer() (pid=")
    assert "\nray.exceptions.RayTaskError(KeyError): ray::inner() (pid=" in text
    assert text.rstrip().endswith("KeyError: 'deep'")


def test_an_error_of_an_argument_is_chained(ray_session):
    ray = ray_session

    @ray.remote
    def a():
        raise ValueError("bad input")

    @ray.remote
    def b(x):
        return x

    with pytest.raises(ValueError, match="bad input") as caught:
        ray.get(b.remote(a.remote()))
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(caught.value))
    assert text.startswith("ray::b() (pid=")
    assert "  At least one of the input arguments for this task could not be computed:" in text
    assert "\nray.exceptions.RayTaskError: ray::a() (pid=" in text


def test_a_task_whose_argument_failed_does_not_run(ray_session, tmp_path):
    ray = ray_session

    @ray.remote
    def a():
        raise ValueError("bad input")

    @ray.remote
    def b(x, path):
        open(path, "w").close()

    with pytest.raises(ValueError, match="bad input"):
        ray.get(b.remote(a.remote(), str(tmp_path / "ran")))
    assert not (tmp_path / "ran").exists()


def test_only_the_users_frames_are_in_the_text(ray_session):
    ray = ray_session
    with pytest.raises(ValueError) as caught:
        ray.get(fails_with(ray, lambda: ValueError("x")))
    assert "_raylet" not in str(caught.value)
    assert "/mray/" not in str(caught.value).replace("/mray/tests/", "")


def test_every_get_raises_again(ray_session):
    ray = ray_session
    ref = fails_with(ray, lambda: ValueError("again"))
    for _ in range(3):
        with pytest.raises(ValueError, match="again"):
            ray.get(ref)


def test_the_error_is_in_every_return_value(ray_session):
    ray = ray_session

    @ray.remote(num_returns=3)
    def f():
        raise ValueError("all")

    for ref in f.remote():
        with pytest.raises(ValueError, match="all"):
            ray.get(ref)


def test_an_error_may_be_a_value(ray_session):
    ray = ray_session

    @ray.remote
    def f():
        return ValueError("no error")

    value = ray.get(f.remote())
    assert isinstance(value, ValueError)
    assert not isinstance(value, ray.exceptions.RayTaskError)


def test_a_raised_class_without_arguments_is_fine(ray_session):
    ray = ray_session
    with pytest.raises(NotImplementedError):
        ray.get(fails_with(ray, lambda: NotImplementedError))


# ------------------------------------------------------------------------------- causes that are difficult
def test_args_of_the_cause_may_be_a_property(ray_session, caplog):
    ray = ray_session

    class ReadOnly(Exception):
        def __init__(self, code):
            self.code = code

        @property
        def args(self):
            return ("read only",)

        def __reduce__(self):
            return ReadOnly, (self.code,)

    @ray.remote
    def f():
        raise ReadOnly(3)

    with pytest.raises(ReadOnly) as raised:
        ray.get(f.remote())
    error = raised.value
    assert isinstance(error, ray.exceptions.RayTaskError)
    assert error.args == (error.cause,)
    assert (error.code, error.cause.code, error.cause.args) == (3, 3, ("read only",))
    assert caplog.records == []


@pytest.mark.differs("mray makes the error an instance of its cause's class all the same; Ray gives a plain RayTaskError and a warning")
@pytest.mark.parametrize("kind", ["attributes", "cause"])
def test_names_of_the_cause_do_not_stand_in_the_way(ray_session, kind):
    ray = ray_session

    class Frozen(Exception):
        def __setattr__(self, name, value):
            raise RuntimeError("frozen")

    class Named(Exception):
        cause = property(lambda _: "mine")

    made = {"attributes": Frozen, "cause": Named}[kind]

    @ray.remote
    def f():
        raise made

    with pytest.raises(ray.exceptions.RayTaskError) as raised:
        ray.get(f.remote())
    error = raised.value
    assert type(error.cause) is made
    assert isinstance(error, made) == (os.environ.get("MRAY_TEST_ENGINE") != "ray")


def test_a_final_class_gives_a_plain_task_error_and_a_warning(ray_session, caplog):
    ray = ray_session

    class Final(Exception):
        def __init_subclass__(cls):
            raise TypeError("final")

    with caplog.at_level(logging.WARNING, logger="ray.exceptions"):
        logging.getLogger("ray.exceptions").addHandler(caplog.handler)
        try:
            with pytest.raises(ray.exceptions.RayTaskError) as caught:
                ray.get(fails_with(ray, Final))
        finally:
            logging.getLogger("ray.exceptions").removeHandler(caplog.handler)
    assert type(caught.value) is ray.exceptions.RayTaskError
    assert type(caught.value.cause).__name__ == "Final"
    assert "This exception is raised as RayTaskError only. You can use `ray_task_error.cause` to access the user exception." in caplog.text


def test_a_cause_that_cannot_be_pickled_is_described(ray_session):
    ray = ray_session
    import threading

    class Unpicklable(Exception):
        def __init__(self):
            self.lock = threading.Lock()

    with pytest.raises(ray.exceptions.RayTaskError) as caught:
        ray.get(fails_with(ray, Unpicklable))
    assert isinstance(caught.value.cause, ray.exceptions.RayError)
    assert "isn't serializable" in str(caught.value.cause)


@pytest.mark.differs("texts that name documentation name the engine's own")
def test_a_cause_that_cannot_be_unpickled_is_described(ray_session):
    ray = ray_session

    def refuse():
        raise RuntimeError("refused")

    class Ununpicklable(Exception):
        def __reduce__(self):
            return (refuse, ())

    with pytest.raises(ray.exceptions.UnserializableException) as caught:
        ray.get(fails_with(ray, Ununpicklable))
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(caught.value))
    assert text.startswith("Failed to deserialize exception. ")
    assert re.search(r"Original exception:\nray\.exceptions\.RayTaskError: ray::f\(\) \(pid=", text)
    assert "Ununpicklable" in text
    assert ("docs.ray.io" in text) == (ray.__name__ == "ray")  # mray's own text does not send its user to Ray's pages


def test_a_cause_whose_arguments_do_not_make_it_again_is_described(ray_session):
    ray = ray_session

    class Needs(Exception):
        def __init__(self, a, b):
            super().__init__(f"{a}{b}")

    with pytest.raises(ray.exceptions.RayError, match="(?s)Needs: 12"):
        ray.get(fails_with(ray, lambda: Needs(1, 2)))


@pytest.mark.skipif(sys.version_info < (3, 11), reason="needs ExceptionGroup")
def test_an_exception_group_keeps_its_members(ray_session):
    ray = ray_session
    with pytest.raises(ExceptionGroup) as caught:  # noqa: F821
        ray.get(fails_with(ray, lambda: ExceptionGroup("group", [ValueError("v"), TypeError("t")])))  # noqa: F821
    assert isinstance(caught.value, ray.exceptions.RayTaskError)
    assert [type(member) for member in caught.value.exceptions] == [ValueError, TypeError]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="needs except*")
def test_except_star_splits_a_groups_error(ray_session):
    ray = ray_session
    namespace: dict[str, object] = {}
    exec(
        """
def run(get):
    seen = []
    try:
        get()
    except* ValueError as group:
        seen.append(("value", len(group.exceptions)))
    except* TypeError as group:
        seen.append(("type", len(group.exceptions)))
    return seen
""",
        namespace,
    )
    ref = fails_with(ray, lambda: ExceptionGroup("group", [ValueError("v"), TypeError("t")]))  # noqa: F821
    assert namespace["run"](lambda: ray.get(ref)) == [("value", 1), ("type", 1)]


# ----------------------------------------------------------------------------------------- BaseException
def test_system_exit_in_a_task_is_a_worker_crash(ray_session):
    ray = ray_session
    with pytest.raises(ray.exceptions.WorkerCrashedError):
        ray.get(fails_with(ray, lambda: SystemExit(3)))


def test_keyboard_interrupt_in_a_task_is_a_cancellation(ray_session):
    ray = ray_session
    with pytest.raises(ray.exceptions.TaskCancelledError):
        ray.get(fails_with(ray, KeyboardInterrupt))


def test_other_base_exceptions_arrive_as_themselves(ray_session):
    ray = ray_session

    class Odd(BaseException):
        pass

    with pytest.raises(BaseException) as caught:
        ray.get(fails_with(ray, Odd))
    assert isinstance(caught.value, ray.exceptions.RayTaskError)
    assert type(caught.value.cause).__name__ == "Odd"


# -------------------------------------------------------------------------------------------- hierarchy
HIERARCHY = [
    ("RayError", Exception), ("RayTaskError", "RayError"), ("RayActorError", "RayError"), ("ActorDiedError", "RayActorError"),
    ("ActorUnavailableError", "RayActorError"), ("WorkerCrashedError", "RayError"), ("GetTimeoutError", "RayError"),
    ("GetTimeoutError", TimeoutError), ("TaskCancelledError", "RayError"), ("ObjectStoreFullError", "RayError"),
    ("ObjectLostError", "RayError"), ("OwnerDiedError", "ObjectLostError"), ("ObjectFetchTimedOutError", "ObjectLostError"),
    ("ReferenceCountingAssertionError", "ObjectLostError"), ("ReferenceCountingAssertionError", AssertionError),
    ("ObjectFreedError", "ObjectLostError"), ("ObjectReconstructionFailedError", "ObjectLostError"),
    ("RuntimeEnvSetupError", "RayError"), ("TaskUnschedulableError", "RayError"), ("ActorUnschedulableError", "RayError"),
    ("TaskPlacementGroupRemoved", "RayError"), ("ActorPlacementGroupRemoved", "RayError"), ("RaySystemError", "RayError"),
    ("LocalRayletDiedError", "RayError"), ("NodeDiedError", "RayError"), ("OutOfDiskError", "RayError"),
    ("OutOfMemoryError", "RayError"), ("PendingCallsLimitExceeded", "RayError"), ("RayChannelError", "RaySystemError"),
    ("RayChannelTimeoutError", "RayChannelError"), ("RayChannelTimeoutError", TimeoutError),
    ("RayCgraphCapacityExceeded", "RaySystemError"), ("CrossLanguageError", "RayError"), ("AsyncioActorExit", "RayError"),
    ("UnserializableException", "RayError"), ("ActorAlreadyExistsError", ValueError), ("ActorAlreadyExistsError", "RayError"),
    ("AuthenticationError", "RayError"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "base"), HIERARCHY)
def test_classes_of_errors_have_their_bases(ray, name, base):
    error = getattr(ray.exceptions, name)
    assert issubclass(error, getattr(ray.exceptions, base) if isinstance(base, str) else base)


# ------------------------------------------------------------------------------------------------ deaths
def test_the_crash_of_a_worker_is_a_worker_crashed_error(ray_session):
    ray = ray_session

    @ray.remote(max_retries=0)
    def f():
        import os
        import signal

        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(ray.exceptions.WorkerCrashedError):
        ray.get(f.remote())


@pytest.mark.only("mray", "local")
def test_a_crash_names_the_signal_and_the_function(ray_session):
    ray = ray_session

    @ray.remote(max_retries=0)
    def crashes_here():
        import os
        import signal

        os.kill(os.getpid(), signal.SIGSEGV)

    with pytest.raises(ray.exceptions.WorkerCrashedError, match="SIGSEGV") as caught:
        ray.get(crashes_here.remote())
    assert "crashes_here" in str(caught.value)
    assert re.search(r"pid[ =]\d+", str(caught.value))


def test_the_crash_of_an_actor_is_an_actor_died_error(ray_session):
    ray = ray_session

    @ray.remote
    class A:
        def die(self):
            import os

            os._exit(7)

        def f(self):
            return 1

    actor = A.remote()
    ray.get(actor.f.remote())
    with pytest.raises(ray.exceptions.ActorDiedError, match="The actor died unexpectedly before finishing this task.") as caught:
        ray.get(actor.die.remote())
    assert caught.value.actor_id == actor._actor_id.hex()
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(actor.f.remote())


def test_a_failed_constructor_fails_every_call(ray_session):
    ray = ray_session

    @ray.remote
    class Fails:
        def __init__(self):
            raise ValueError("in the constructor")

        def f(self):
            return 1

    actor = Fails.remote()
    for _ in range(2):
        with pytest.raises(ray.exceptions.RayActorError) as caught:
            ray.get(actor.f.remote())
        text = re.sub(r"\x1b\[[0-9;]*m", "", str(caught.value))
        assert "The actor died because of an error raised in its creation task, ray::Fails.__init__() (pid=" in text
        assert "in the constructor" in text


def test_a_failed_argument_of_a_constructor_fails_every_call(ray_session):
    ray = ray_session

    @ray.remote
    class A:
        def __init__(self, x):
            self.x = x

        def f(self):
            return self.x

        def __repr__(self):
            return "A of mine"

    actor = A.remote(fails_with(ray, lambda: ValueError("argument")))
    with pytest.raises(ray.exceptions.RayActorError, match="(?s)repr=A of mine.*could not be computed.*argument"):
        ray.get(actor.f.remote())


@pytest.mark.processes("a module that is imported here is imported everywhere")
def test_an_actor_whose_module_cannot_be_imported_says_so(ray_session, tmp_path, monkeypatch):
    ray = ray_session
    (tmp_path / "vanishing.py").write_text("class Plain:\n    def f(self):\n        return 1\n\n\ndef g():\n    return 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import vanishing

    Actor, g = ray.remote(vanishing.Plain), ray.remote(vanishing.g)
    (tmp_path / "vanishing.py").unlink()
    for cache in (tmp_path / "__pycache__").glob("*"):
        cache.unlink()
    try:
        with pytest.raises(RuntimeError, match="(?s)RuntimeError: The remote function failed to import on the worker.*vanishing") as caught:
            ray.get(g.remote())
        text = re.sub(r"\x1b\[[0-9;]*m", "", str(caught.value))
        assert text.startswith("ray::g() (pid=")
        with pytest.raises(
            ray.exceptions.ActorDiedError, match="(?s)RuntimeError: The actor with name Plain failed to import on the worker.*vanishing"
        ) as died:
            ray.get(Actor.remote().f.remote())
        assert "executor.py" not in text + str(died.value)
    finally:
        sys.modules.pop("vanishing", None)


def test_a_task_that_hangs_on_a_dead_actor_is_told(ray_session, signal):
    ray = ray_session

    @ray.remote
    class A:
        def hang(self):
            time.sleep(10_000)

    actor = A.remote()
    refs = [actor.hang.remote() for _ in range(3)]

    @ray.remote
    def waits(refs):
        try:
            ray.get(refs[0])
        except ray.exceptions.RayActorError:
            return "told"

    result = waits.remote(refs)
    ray.kill(actor)
    for ref in refs:
        with pytest.raises(ray.exceptions.RayActorError):
            ray.get(ref)
    assert ray.get(result) == "told"


# -------------------------------------------------------------------------------------------- cancelling
def test_cancelling_what_is_done_has_no_effect(ray_session):
    ray = ray_session

    @ray.remote
    def f():
        return 1

    ref = f.remote()
    assert ray.get(ref) == 1
    ray.cancel(ref)
    assert ray.get(ref) == 1


@pytest.mark.only("mray", "local")
def test_a_thread_that_waits_for_a_queued_task_hears_that_another_cancels_it(fresh, init, tmp_path):
    import threading

    ray = fresh
    init(num_cpus=1)
    gate = tmp_path / "gate"

    @ray.remote
    def long(gate):
        while not os.path.exists(gate):
            time.sleep(0.01)

    running = long.remote(str(gate))
    queued = long.remote(str(gate))
    raised = []

    def wait():
        try:
            ray.get(queued)
        except ray.exceptions.TaskCancelledError as error:
            raised.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    time.sleep(0.3)
    ray.cancel(queued)
    waiter.join(30)
    gate.touch()
    waiter.join()
    assert raised
    ray.get(running)


@pytest.mark.only("mray", "local")
def test_a_task_that_ends_as_it_is_cancelled_is_answered(ray_session):
    """The interrupt may meet the worker at any moment, also after the function has returned."""
    import random

    ray = ray_session
    numbers = random.Random(3)

    @ray.remote(max_retries=0)
    def f(count):
        total = 0
        for i in range(count):
            total += i
        return total

    for _ in range(400):
        refs = {f.remote(count): sum(range(count)) for count in numbers.choices(range(1, 20_000), k=4)}
        time.sleep(numbers.uniform(0, 0.002))
        for ref in refs:
            ray.cancel(ref)
        for ref, total in refs.items():
            try:
                assert ray.get(ref, timeout=30) == total
            except ray.exceptions.TaskCancelledError:
                pass
