"""Values that can be sent, values that cannot, and their errors."""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import importlib
import os
import re
import signal
import threading

import pytest


def roundtrip(ray, value):
    """Through a task, so that another process unpickles it."""

    @ray.remote
    def same(x):
        return x

    return ray.get(same.remote(value))


def test_nested_functions_and_closures_survive(ray_session):
    offset = 10

    def outer(x):
        def inner(y):
            return x + y + offset

        return inner

    assert roundtrip(ray_session, outer(1))(2) == 13


def test_lambdas_partials_and_methods_survive(ray_session):
    class A:
        def __init__(self, x):
            self.x = x

        def add(self, y):
            return self.x + y

    assert roundtrip(ray_session, lambda x: x + 1)(1) == 2
    assert roundtrip(ray_session, functools.partial(max, 3))(2) == 3
    assert roundtrip(ray_session, A(2).add)(3) == 5


def test_classes_of_the_same_name_stay_apart(ray_session):
    def make(value):
        class Same:
            x = value

        return Same

    first, second = make(1), make(2)
    assert roundtrip(ray_session, first()).x == 1
    assert roundtrip(ray_session, second()).x == 2


def test_enums_dataclasses_named_tuples_and_patterns_survive(ray_session):
    class Color(enum.Enum):
        RED = 1

    @dataclasses.dataclass(frozen=True)
    class Point:
        x: int
        y: int = 2

    Pair = collections.namedtuple("Pair", "a b")
    assert roundtrip(ray_session, Color.RED).name == "RED"
    back = roundtrip(ray_session, Point(1))
    assert (back.x, back.y) == (1, 2)
    assert tuple(roundtrip(ray_session, Pair(1, 2))) == (1, 2)
    assert roundtrip(ray_session, re.compile("a+")).fullmatch("aaa")
    assert roundtrip(ray_session, collections.defaultdict(list, {1: [2]}))[5] == []


def test_recursive_objects_survive(ray_session):
    class Node:
        pass

    node = Node()
    node.self = node
    back = roundtrip(ray_session, node)
    assert back.self is back


def test_deep_structures_survive(ray_session):
    value: object = "bottom"
    for _ in range(100):
        value = [value]
    back = roundtrip(ray_session, value)
    for _ in range(100):
        (back,) = back
    assert back == "bottom"


@pytest.mark.only("mray", "local")
def test_shared_parts_stay_shared(ray_session):
    part = [1]
    back = roundtrip(ray_session, [part, part])
    assert back[0] is back[1]


def test_a_value_that_cannot_be_pickled_is_named(ray_session):
    ray = ray_session
    with pytest.raises(TypeError, match="Could not serialize the put value"):
        ray.put(threading.Lock())


def test_an_argument_that_cannot_be_pickled_is_named(ray_session):
    ray = ray_session

    @ray.remote
    def takes(x):
        return x

    with pytest.raises(TypeError, match=r"(?s)Could not serialize the argument <unlocked .*lock.*> for a task or actor .*takes"):
        takes.remote(threading.Lock())

    @ray.remote
    class Holder:
        def take(self, x):
            return x

    with pytest.raises(TypeError, match=r"for a task or actor \S+\.Holder\.take:"):
        Holder.remote().take.remote(threading.Lock())


def test_a_function_that_cannot_be_pickled_is_named_with_the_path(ray_session):
    ray = ray_session
    lock = threading.Lock()

    @ray.remote
    def captures():
        return lock

    with pytest.raises(TypeError, match="(?s)Could not serialize the function .*captures.*lock"):
        captures.remote()


def test_an_actor_class_that_cannot_be_pickled_is_named(ray_session):
    ray = ray_session
    lock = threading.Lock()

    @ray.remote
    class Captures:
        def __init__(self):
            self.lock = lock

    with pytest.raises(TypeError, match=r"(?s)Could not serialize the actor class .*Captures.*__init__.*lock"):
        Captures.remote()


def test_a_result_that_cannot_be_pickled_is_the_tasks_error(ray_session):
    ray = ray_session

    @ray.remote
    def f():
        return threading.Lock()

    with pytest.raises(TypeError, match="(?i)pickle"):
        ray.get(f.remote())


def test_after_an_error_of_pickling_work_goes_on(ray_session):
    ray = ray_session

    @ray.remote
    def f(x):
        return x

    for _ in range(3):
        with pytest.raises(TypeError):
            f.remote(threading.Lock())
        assert ray.get(f.remote(1)) == 1


def test_an_error_raised_while_pickling_reaches_the_caller(ray_session):
    ray = ray_session

    class Refuses:
        def __reduce__(self):
            raise RuntimeError("will not")

    with pytest.raises(RuntimeError, match="will not"):
        ray.put(Refuses())

    @ray.remote
    def f():
        return Refuses()

    with pytest.raises(RuntimeError, match="will not"):
        ray.get(f.remote())


def test_an_error_raised_while_unpickling_an_argument_is_the_tasks_error(ray_session):
    ray = ray_session

    def explode():
        raise RuntimeError("cannot be read")

    class Explodes:
        def __reduce__(self):
            return (explode, ())

    @ray.remote
    def f(x):
        return x

    with pytest.raises(ray.exceptions.RayTaskError, match="(?s)could not be computed.*System error: cannot be read") as caught:
        ray.get(f.remote(Explodes()))
    assert isinstance(caught.value.cause, ray.exceptions.RaySystemError)
    with pytest.raises(ray.exceptions.RayTaskError, match="(?s)could not be computed.*System error: cannot be read"):
        ray.get(f.remote(ray.put(Explodes())))
    assert ray.get(f.remote(1)) == 1


class Alarmed:
    """While it is made, a signal comes."""

    def __reduce__(self):
        return signal.raise_signal, (signal.SIGUSR1,)


@pytest.mark.only("mray")  # Ray takes it for the value's; with one process nothing stands before the user's handlers
def test_what_a_handler_of_a_signal_raises_as_a_value_is_made_is_raised(ray_session):
    ray = ray_session

    class Alarm(Exception):
        pass

    def alarm(_number, _frame):
        raise Alarm

    before = signal.signal(signal.SIGUSR1, alarm)
    try:
        with pytest.raises(Alarm):
            ray.get(ray.put(Alarmed()))
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_an_error_raised_while_unpickling_a_value_reaches_get(ray_session):
    ray = ray_session

    def explode():
        raise RuntimeError("cannot be read")

    class Explodes:
        def __reduce__(self):
            return (explode, ())

    with pytest.raises(ray.exceptions.RaySystemError, match="(?s)System error: cannot be read\ntraceback: Traceback .*explode"):
        ray.get(ray.put(Explodes()))


def test_inspect_serializability_finds_the_culprit(ray):
    lock = threading.Lock()

    def f():
        return lock

    ok, failures = ray.util.inspect_serializability(f, name="f")
    assert not ok
    assert any("lock" in repr(failure) for failure in failures)
    assert ray.util.inspect_serializability(1)[0]


def test_a_registered_serializer_is_used(ray_session):
    ray = ray_session

    class Holder:
        def __init__(self, x):
            self.x = x
            self.lock = threading.Lock()

    ray.util.register_serializer(Holder, serializer=lambda holder: holder.x, deserializer=lambda x: Holder(x + 1))
    try:
        assert ray.get(ray.put(Holder(1))).x == 2

        @ray.remote
        def read(holder):
            return holder.x

        assert ray.get(read.remote(Holder(1))) == 2
    finally:
        ray.util.deregister_serializer(Holder)
    with pytest.raises(TypeError):
        ray.put(Holder(1))


def test_a_serializer_may_be_registered_before_init(fresh, init):
    ray = fresh

    class Holder:
        def __init__(self, x):
            self.x = x
            self.lock = threading.Lock()

    ray.util.register_serializer(Holder, serializer=lambda holder: holder.x, deserializer=Holder)
    try:
        init(num_cpus=1)
        assert ray.get(ray.put(Holder(5))).x == 5
    finally:
        ray.util.deregister_serializer(Holder)


def test_registered_serializers_hold_for_code_and_for_what_users_pickle_themselves(ray_session):
    ray = ray_session
    pickler = importlib.import_module(f"{ray.__name__}.cloudpickle")

    class Holder:
        def __init__(self, x):
            self.x = x
            self.lock = threading.Lock()

    ray.util.register_serializer(Holder, serializer=lambda holder: holder.x, deserializer=str)
    try:
        captured = Holder(5)

        @ray.remote
        def read():
            return captured

        assert pickler.loads(pickler.dumps([captured])) == ["5"]
        assert ray.get(read.remote()) == "5"
        assert not ray.util.inspect_serializability(captured)[1]
    finally:
        ray.util.deregister_serializer(Holder)
    with pytest.raises(TypeError):
        pickler.dumps(captured)


@pytest.mark.skipif(os.environ.get("MRAY_TEST_ENGINE") == "mray-on-ray", reason="Ray pickles values there, by a table of its own")
def test_reducers_of_the_picklers_table_hold_for_values_too(ray_session):
    ray = ray_session
    pickler = importlib.import_module(f"{ray.__name__}.cloudpickle")

    class Holder:
        pass

    pickler.CloudPickler.dispatch[Holder] = lambda holder: (int, ("5",))
    try:
        assert pickler.loads(pickler.dumps(Holder())) == 5
        assert ray.get(ray.put([Holder()])) == [5]
    finally:
        del pickler.CloudPickler.dispatch[Holder]


def test_modules_of_the_drivers_path_can_be_imported(ray_session, tmp_path, monkeypatch, run_program):
    (tmp_path / "beside.py").write_text("VALUE = 42\n\n\ndef f():\n    return VALUE\n")
    done = run_program(
        """
        import ENGINE as ray
        import beside

        ray.init(num_cpus=1, logging_level="ERROR", include_dashboard=False)
        print(ray.get(ray.remote(beside.f).remote()))
        """
    )
    assert done.stdout.split() == ["42"]


def test_pickled_exceptions_with_registered_serializers_arrive(ray_session):
    ray = ray_session

    class Odd(Exception):
        def __init__(self, a, b):
            super().__init__(a)
            self.b = b

    ray.util.register_serializer(Odd, serializer=lambda e: (e.args[0], e.b), deserializer=lambda ab: Odd(*ab))
    try:

        @ray.remote
        def f():
            ray.util.register_serializer(Odd, serializer=lambda e: (e.args[0], e.b), deserializer=lambda ab: Odd(*ab))
            raise Odd("a", "b")

        with pytest.raises(ray.exceptions.RayTaskError) as caught:
            ray.get(f.remote())
        assert caught.value.cause.b == "b"
    finally:
        ray.util.deregister_serializer(Odd)
