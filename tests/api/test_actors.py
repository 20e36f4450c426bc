"""Actors: state, order, handles, methods, what is an error."""

from __future__ import annotations

import functools
import os
import sched
import threading
import time

import pytest


@pytest.fixture
def counter(ray):
    """The actor class most tests use."""

    class Counter:
        """Counts."""

        step = 1

        def __init__(self, value=0, *, step=None):
            self.value = value
            if step is not None:
                self.step = step

        def increment(self, by=None):
            self.value += self.step if by is None else by
            return self.value

        def read(self):
            return self.value

        def pid(self):
            return os.getpid()

        def echo(self, *args, **kwargs):
            return args, kwargs

    return ray.remote(Counter)


def test_an_actor_keeps_state(ray_session, counter):
    ray = ray_session
    actor = counter.remote()
    assert ray.get([actor.increment.remote() for _ in range(3)]) == [1, 2, 3]
    assert ray.get(actor.read.remote()) == 3


def test_constructor_arguments_arrive(ray_session, counter):
    ray = ray_session
    assert ray.get(counter.remote(10, step=5).increment.remote()) == 15
    assert ray.get(counter.remote(ray.put(7)).read.remote()) == 7


def test_an_actor_is_a_process_of_its_own(ray_session, counter):
    ray = ray_session
    first, second = counter.remote(), counter.remote()
    pids = ray.get([first.pid.remote(), second.pid.remote(), first.pid.remote()])
    assert pids[0] == pids[2]
    assert len({*pids, os.getpid()}) == 3


def test_arguments_of_methods_arrive(ray_session, counter):
    ray = ray_session
    actor = counter.remote()
    assert ray.get(actor.echo.remote()) == ((), {})
    assert ray.get(actor.echo.remote(1, ray.put(2), a=ray.put(3), b=[4])) == ((1, 2), {"a": 3, "b": [4]})


def test_signatures_are_checked_at_the_call(ray_session, counter):
    actor = counter.remote()
    with pytest.raises(TypeError):
        actor.increment.remote(1, 2)
    with pytest.raises(TypeError):
        actor.read.remote(x=1)
    with pytest.raises(TypeError):
        counter.remote(1, 2, 3)


def test_an_unknown_method_is_an_attribute_error(ray_session, counter):
    actor = counter.remote()
    with pytest.raises(AttributeError, match="nothing"):
        actor.nothing.remote()


def test_methods_may_not_be_called_directly(ray_session, counter):
    actor = counter.remote()
    with pytest.raises(TypeError, match="Actor methods cannot be called directly"):
        actor.read()


def test_an_actor_class_may_not_be_instantiated_directly(ray, counter):
    with pytest.raises(TypeError, match="(?i)actors cannot be instantiated directly"):
        counter()


def test_an_actor_class_may_not_be_subclassed(ray, counter):
    with pytest.raises(TypeError):

        class Sub(counter):
            pass


def test_actor_classes_inherit_from_plain_ones(ray_session):
    ray = ray_session

    class Base:
        def __init__(self, x):
            self.x = x

        def f(self):
            return self.x

        def overridden(self):
            return "base"

    @ray.remote
    class Derived(Base):
        def __init__(self, x):
            super().__init__(x * 2)

        def overridden(self):
            return "derived+" + super().overridden()

    actor = Derived.remote(2)
    assert ray.get([actor.f.remote(), actor.overridden.remote()]) == [4, "derived+base"]


def test_class_attributes_and_static_methods_are_there(ray_session):
    ray = ray_session

    @ray.remote
    class A:
        shared = (1,)

        @staticmethod
        def static(x):
            return x + 1

        @classmethod
        def cls(cls):
            return cls.shared

        def f(self):
            return A_name(self), self.static(1), self.cls()

    def A_name(instance):
        return type(instance).__name__

    actor = A.remote()
    assert ray.get(actor.f.remote()) == ("A", 2, (1,))
    assert ray.get(actor.static.remote(5)) == 6


class _Traced:
    """A decorator that is a descriptor."""

    def __init__(self, function):
        self.function = function

    def __get__(self, instance, owner=None):
        function = self.function
        if instance is None:
            return lambda self, *args, **kwargs: ("traced", function(self, *args, **kwargs))
        return lambda *args, **kwargs: ("traced", function(instance, *args, **kwargs))


class _PerInstance:
    """A descriptor that the class itself cannot ask."""

    def __get__(self, instance, owner=None):
        return instance.number


class _Base:
    number = 5
    pair = functools.partialmethod(lambda self, a, b: (a, b), 1)


class _Descriptors(_Base):
    lonely = _PerInstance()

    @_Traced
    def traced(self, x, *, by=1):
        return x * by + self.number

    @property
    def shown(self):
        return "no method"

    @functools.partial
    def no_descriptor(self):
        return None


class _Cached(_Base):
    @functools.lru_cache  # noqa: B019
    def cached(self, x):
        return x + self.number


class _Dispatching:
    @functools.singledispatchmethod
    def kind(self, value):
        return "something"

    @kind.register
    def _(self, value: int):
        return "int"


def test_methods_that_a_class_has_by_descriptors_are_the_handles_too(ray_session):
    ray = ray_session
    actor = ray.remote(_Descriptors).remote()
    assert ray.get(actor.pair.remote(2)) == (1, 2)
    assert ray.get(actor.pair.options(name="two").remote(b=3)) == (1, 3)
    assert ray.get(actor.traced.remote(3, by=2)) == ("traced", 11)
    with pytest.raises(TypeError):
        actor.pair.remote(1, 2, 3)
    for name in ("lonely", "shown", "no_descriptor"):
        assert not hasattr(actor, name)
    node = actor.pair.bind(4)
    assert ray.get(node.execute()) == (1, 4)


@pytest.mark.differs("functools.lru_cache makes no function, and Ray looks for functions only")
@pytest.mark.only("mray", "local", "ray")
def test_a_cached_method_is_one_of_the_handle(ray_session, engine):
    ray = ray_session
    actor = ray.remote(_Cached).remote()
    if engine == "ray":
        assert not hasattr(actor, "cached")
    else:
        assert ray.get([actor.cached.remote(1), actor.cached.remote(1)]) == [6, 6]


@pytest.mark.only("mray", "local")
def test_a_method_that_dispatches_by_type_is_one_of_the_handle(ray_session):
    """Ray cannot pickle the class."""
    actor = ray_session.remote(_Dispatching).remote()
    assert ray_session.get([actor.kind.remote(1), actor.kind.remote("text")]) == ["int", "something"]


@pytest.mark.only("mray", "local")
def test_partial_methods_of_coroutines_and_generators_are_of_their_kind(ray_session):
    ray = ray_session

    @ray.remote
    class Kinds:
        async def plus(self, a, b):
            return a + b

        def count(self, first, last):
            yield from range(first, last)

        plus_one = functools.partialmethod(plus, 1)
        count_from_two = functools.partialmethod(count, 2)

    actor = Kinds.remote()
    assert ray.get(actor.plus_one.remote(4)) == 5
    assert [ray.get(ref) for ref in actor.count_from_two.remote(4)] == [2, 3]


@pytest.mark.differs("Ray takes `self` in a plain call of a function alone, and no `fn` in `__ray_call__`")
@pytest.mark.only("mray", "local", "ray")  # mray on Ray goes by `options`, and takes a minute for all
@pytest.mark.parametrize("name", ["self", "args", "kwargs", "options", "name", "method", "function", "fn"])
def test_a_keyword_may_have_any_name(ray_session, engine, name):
    ray = ray_session

    @ray.remote
    def task(**kwargs):
        return kwargs

    @ray.remote
    class Named:
        def __init__(this, **kwargs):
            this.kwargs = kwargs

        def made_with(this):
            return this.kwargs

        def method(this, **kwargs):
            return kwargs

        @staticmethod
        def static(**kwargs):
            return kwargs

    given = {name: 1}
    assert ray.get(task.remote(**given)) == given
    if engine == "ray" and name == "self":
        return
    assert ray.get([task.options(num_cpus=0.5).remote(**given), task.bind(**given).execute()]) == [given] * 2
    small = Named.options(num_cpus=0)
    actors = [small.remote(**given), small.bind(**given).execute(), Named.remote(**given)]
    assert ray.get([actor.made_with.remote() for actor in actors]) == [given] * 3
    actor = actors[0]
    refs = [actor.method.remote(**given), actor.method.options(num_returns=1).remote(**given), actor.static.remote(**given)]
    refs += [actor.method.bind(**given).execute(), small.bind().method.bind(**given).execute()]
    assert ray.get(refs) == [given] * 5
    if engine == "mray" or name != "fn":
        assert ray.get(actor.__ray_call__.remote(lambda _instance, **kwargs: kwargs, **given)) == given


def test_methods_that_were_put_in_a_class_of_a_module_go_along_with_it(ray_session, monkeypatch):
    monkeypatch.setattr(sched.scheduler, "run", lambda _self: 42)
    actor = ray_session.remote(sched.scheduler).remote()
    assert ray_session.get([actor.run.remote(), actor.empty.remote()], timeout=30) == [42, True]


def test_the_class_tells_what_it_was_decorated_with(ray):
    class Plain:
        def f(self):
            return 1

        @ray.method(num_returns=2)
        def g(self):
            return 1, 2

    environment = {"env_vars": {"a": "b"}}
    made = ray.remote(num_cpus=2, resources={"custom": 1}, max_restarts=3, runtime_env=environment, concurrency_groups={"io": 2})(Plain)
    assert made.__ray_actor_class__ is Plain
    metadata = made.__ray_metadata__
    assert metadata.class_name == Plain.__qualname__
    assert issubclass(metadata.modified_class, Plain)
    assert (metadata.num_cpus, metadata.num_gpus, metadata.memory, metadata.resources) == (2, None, None, {"custom": 1})
    assert (metadata.max_restarts, metadata.max_task_retries, metadata.is_cross_language) == (3, 0, False)
    assert (metadata.runtime_env, metadata.concurrency_groups, metadata.scheduling_strategy) == (environment, {"io": 2}, None)
    assert {name: metadata.method_meta.num_returns[name] for name in "fg"} == {"f": None, "g": 2}
    assert set(metadata.method_meta.methods) >= {"f", "g"}
    plain = ray.remote(Plain)
    assert (plain.__ray_metadata__.num_cpus, plain.__ray_metadata__.max_restarts) == (None, 0)
    # Those who ask by name find it at the class only.
    assert not hasattr(made.options(num_cpus=1), "__ray_metadata__")
    assert getattr(Plain, "__ray_actor_class__", Plain) is Plain


@pytest.mark.parametrize("options", [{}, {"max_concurrency": 2}], ids=["sync", "threaded"])
def test_an_attribute_of_the_instance_does_not_hide_a_method(ray_session, options):
    ray = ray_session

    class Base:
        def inherited(self):
            return "inherited"

    @ray.remote(num_cpus=0, **options)
    class Account(Base):
        def __init__(self):
            for name in ("balance", "inherited", "static", "items"):
                setattr(self, name, 100.0)
            self.of_class = lambda: "of the instance"

        def balance(self):
            return f"balance {self.balance}"

        def items(self):
            yield self.items

        @staticmethod
        def static():
            return "static"

        @classmethod
        def of_class(cls):
            return f"class {cls.__name__}"

    account = Account.remote()
    answers = ray.get([account.balance.remote(), account.inherited.remote(), account.static.remote(), account.of_class.remote()])
    assert answers == ["balance 100.0", "inherited", "static", "class Account"]
    assert [ray.get(item) for item in account.items.remote()] == [100.0]


def test_a_method_may_have_several_returns(ray_session):
    ray = ray_session

    @ray.remote
    class A:
        @ray.method(num_returns=2)
        def two(self):
            return 1, 2

        def three(self):
            return 1, 2, 3

        @ray.method(num_returns=0)
        def none(self):
            return None

    actor = A.remote()
    assert ray.get(actor.two.remote()) == [1, 2]
    assert ray.get(actor.three.options(num_returns=3).remote()) == [1, 2, 3]
    assert ray.get(actor.two.options(num_returns=1).remote()) == (1, 2)
    assert actor.none.remote() is None


def test_calls_run_in_the_order_of_submission(ray_session):
    ray = ray_session

    @ray.remote
    class Log:
        def __init__(self):
            self.seen = []

        def add(self, x):
            self.seen.append(x)

        def read(self):
            return self.seen

    log = Log.remote()
    for i in range(200):
        log.add.remote(i)
    assert ray.get(log.read.remote()) == list(range(200))


def test_order_holds_when_the_first_argument_is_late(ray_session, signal):
    ray = ray_session
    gate = signal()

    @ray.remote
    class Log:
        def __init__(self):
            self.seen = []

        def add(self, x):
            self.seen.append(x)
            return list(self.seen)

    @ray.remote
    def late(gate):
        while not ray.get(gate.is_set.remote()):
            time.sleep(0.003)
        return "first"

    log = Log.remote()
    log.add.remote(late.remote(gate))
    last = log.add.remote("second")
    assert ray.wait([last], timeout=0.05) == ([], [last])
    ray.get(gate.send.remote())
    assert ray.get(last) == ["first", "second"]


def test_another_caller_does_not_wait_behind_a_late_argument(ray_session, signal):
    ray = ray_session
    gate = signal()

    @ray.remote
    class Log:
        def __init__(self):
            self.seen = []

        def add(self, x):
            self.seen.append(x)
            return list(self.seen)

    @ray.remote
    def late(gate):
        while not ray.get(gate.is_set.remote()):
            time.sleep(0.003)
        return "late"

    @ray.remote
    def other(log):
        return ray.get(log.add.remote("other"))

    log = Log.remote()
    ref = log.add.remote(late.remote(gate))
    assert ray.get(other.remote(log)) == ["other"]
    ray.get(gate.send.remote())
    assert ray.get(ref) == ["other", "late"]


def test_a_failing_call_leaves_the_actor_alive(ray_session):
    ray = ray_session

    @ray.remote
    class A:
        def fail(self):
            raise ValueError("once")

        def f(self):
            return 1

    actor = A.remote()
    with pytest.raises(ValueError, match="once"):
        ray.get(actor.fail.remote())
    assert ray.get(actor.f.remote()) == 1


def test_handles_travel_to_tasks_and_actors_and_back(ray_session, counter):
    ray = ray_session

    @ray.remote
    def use(handle):
        return ray.get(handle.increment.remote())

    @ray.remote
    class Keeper:
        def keep(self, handles):
            self.handle = handles[0]

        def use(self):
            return ray.get(self.handle.increment.remote())

        def give(self):
            return self.handle

    actor, keeper = counter.remote(), Keeper.remote()
    assert ray.get(use.remote(actor)) == 1
    ray.get(keeper.keep.remote([actor]))
    assert ray.get(keeper.use.remote()) == 2
    back = ray.get(keeper.give.remote())
    assert ray.get(back.increment.remote()) == 3
    assert back == actor
    assert hash(back) == hash(actor)


def test_handles_may_be_put(ray_session, counter):
    ray = ray_session
    actor = counter.remote()
    assert ray.get(ray.get(ray.put([actor]))[0].increment.remote()) == 1


def test_handles_are_different_for_different_actors(ray_session, counter):
    first, second = counter.remote(), counter.remote()
    assert first != second
    assert len({first, second, first}) == 2


def test_a_handle_shows_class_and_id(ray_session, counter):
    actor = counter.remote()
    assert repr(actor) == f"Actor(counter.<locals>.Counter, {actor._actor_id.hex()})"


def test_dir_of_a_handle_lists_methods_only(ray_session, counter):
    actor = counter.remote()
    assert set(dir(actor)) == {
        "increment", "read", "pid", "echo", "__init__", "__ray_ready__", "__ray_call__", "__ray_terminate__",
    }  # fmt: skip


def test_dir_of_a_class_lists_methods_options_remote_and_bind(ray, counter):
    names = {name for name in dir(counter) if not name.startswith("_")}
    assert {"options", "remote", "bind"} <= names
    assert names - {"options", "remote", "bind"} == {"increment", "read", "pid", "echo", "step"} - ({"step"} - names)


def test_an_actor_may_create_actors(ray_session, counter):
    ray = ray_session

    @ray.remote
    class Parent:
        def __init__(self):
            self.children = [counter.remote(i) for i in range(2)]

        def read(self):
            return ray.get([child.increment.remote() for child in self.children])

    assert ray.get(Parent.remote().read.remote()) == [1, 2]


def test_an_actor_may_call_itself_through_its_handle(ray_session):
    ray = ray_session

    @ray.remote
    class A:
        def me(self):
            return ray.get_runtime_context().current_actor

        def f(self, x):
            return x

        def start(self):
            return [self_handle(ray).f.remote(5)]

    def self_handle(ray):
        return ray.get_runtime_context().current_actor

    actor = A.remote()
    assert ray.get(ray.get(actor.start.remote())[0]) == 5
    assert ray.get(actor.me.remote()) == actor


def test_ready_and_call_are_on_every_actor(ray_session, counter):
    ray = ray_session
    actor = counter.remote(3)
    assert ray.get(actor.__ray_ready__.remote()) is True
    assert ray.get(actor.__ray_call__.remote(lambda self, x: self.value + x, 4)) == 7


def test_options_of_a_class_do_not_change_the_class(ray_session, counter):
    ray = ray_session
    named = counter.options(num_cpus=1)
    assert ray.get(named.remote(1).read.remote()) == 1
    assert ray.get(counter.remote(2).read.remote()) == 2


def test_underscore_remote_of_a_class_and_a_method(ray_session, counter):
    ray = ray_session
    actor = counter._remote(args=[5], kwargs={"step": 2})
    assert ray.get(actor.increment._remote()) == 7
    assert ray.get(actor.echo._remote(args=[1], kwargs={"a": 2}, num_returns=1)) == ((1,), {"a": 2})


def test_actors_hold_no_cpu_while_they_run(fresh, init):
    ray = fresh
    init(num_cpus=1)

    @ray.remote
    class A:
        def f(self):
            return 1

    @ray.remote
    def task():
        return 2

    actors = [A.remote() for _ in range(5)]
    assert ray.get([actor.f.remote() for actor in actors]) == [1] * 5
    assert ray.get(task.remote()) == 2


def test_an_actor_may_block_in_get_and_wait(ray_session):
    ray = ray_session

    @ray.remote
    def leaf(x):
        return x

    @ray.remote
    class A:
        def f(self):
            ref = leaf.remote(1)
            ray.wait([ref])
            return ray.get(ref)

    assert ray.get(A.remote().f.remote()) == 1


def test_many_calls_from_many_callers(ray_session, counter):
    ray = ray_session
    actor = counter.remote()

    @ray.remote
    def work(actor):
        return [ray.get(actor.increment.remote()) for _ in range(10)]

    seen = ray.get([work.remote(actor) for _ in range(4)])
    assert sorted(number for numbers in seen for number in numbers) == list(range(1, 41))


def test_calls_of_many_threads_of_one_process(ray_session, counter):
    ray = ray_session
    actor = counter.remote()
    seen = []

    def run():
        seen.extend(ray.get([actor.increment.remote() for _ in range(20)]))

    threads = [threading.Thread(target=run) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == list(range(1, 101))


def test_large_arguments_and_results_of_methods(ray_session, counter):
    ray = ray_session
    actor = counter.remote()
    value = os.urandom(2_000_000)
    assert ray.get(actor.echo.remote(value, k=value)) == ((value,), {"k": value})


@pytest.mark.processes("reads its title")
def test_the_title_of_an_actors_process_names_it(ray_session):
    ray = ray_session

    @ray.remote
    class Titled:
        def __init__(self):
            self.first = self.title()

        def title(self):
            with open("/proc/self/cmdline", "rb") as file:
                return file.read().partition(b"\0")[0].decode()

        def both(self):
            return self.first, self.title()

    assert ray.get(Titled.remote().both.remote()) == ("ray::Titled.__init__", "ray::Titled.both")
    named = Titled.options(name="known").remote()
    assert ray.get(named.both.remote()) == ("ray::known:Titled.__init__", "ray::Titled.both")
    assert ray.get(named.title.options(name="chosen").remote()) == "ray::chosen"


def test_the_name_given_to_a_call_stands_in_its_error(ray_session):
    ray = ray_session

    @ray.remote
    class Fails:
        def f(self):
            raise ValueError("on purpose")

    with pytest.raises(ValueError, match=r"ray::chosen\(\)"):
        ray.get(Fails.remote().f.options(name="chosen").remote())


def test_a_thread_of_an_actor_may_use_the_api(ray_session):
    ray = ray_session

    @ray.remote
    def leaf(x):
        return x * 2

    @ray.remote
    class A:
        def start(self):
            self.result = None
            self.thread = threading.Thread(target=self.run)
            self.thread.start()

        def run(self):
            self.result = ray.get(leaf.remote(21))

        def read(self):
            self.thread.join()
            return self.result

    actor = A.remote()
    ray.get(actor.start.remote())
    assert ray.get(actor.read.remote()) == 42


def test_calls_queued_before_the_constructor_is_done_run(ray_session, signal):
    ray = ray_session
    gate = signal()

    @ray.remote
    class Slow:
        def __init__(self, gate):
            while not ray.get(gate.is_set.remote()):
                time.sleep(0.003)
            self.n = 0

        def f(self):
            self.n += 1
            return self.n

    actor = Slow.remote(gate)
    refs = [actor.f.remote() for _ in range(5)]
    ray.get(gate.send.remote())
    assert ray.get(refs) == [1, 2, 3, 4, 5]


def test_two_actors_may_talk_to_each_other(ray_session):
    ray = ray_session

    @ray.remote
    class Player:
        def set_other(self, other):
            self.other = other

        def ball(self, n):
            return n if n == 0 else [self.other.ball.remote(n - 1)]

    a, b = Player.remote(), Player.remote()
    ray.get([a.set_other.remote(b), b.set_other.remote(a)])
    value = a.ball.remote(6)
    while not isinstance(value, int):
        value = ray.get(value)
        value = value[0] if isinstance(value, list) else value
    assert value == 0


def test_code_of_an_actor_over_95_mib_is_refused(ray_session):
    ray = ray_session
    ballast = b"x" * (96 * 1024 * 1024)

    @ray.remote
    class Actor:
        def f(self):
            return len(ballast)

    with pytest.raises(ValueError, match="The actor Actor is too large"):
        Actor.remote()


def test_an_invocation_decorator_sees_every_call_of_a_method(ray_session):
    ray = ray_session

    def decorate(method):
        def wrap(invocation):
            def call(args, kwargs):
                return invocation((args[0] * 10,), kwargs)

            return call

        method.__ray_invocation_decorator__ = wrap
        return method

    @ray.remote
    class A:
        @decorate
        def f(self, x):
            return x

    assert ray.get(A.remote().f.remote(2)) == 20


def test_an_actor_that_asks_for_object_store_memory_is_warned(ray):
    class A:
        """Never started."""

    with pytest.warns(DeprecationWarning, match="Setting 'object_store_memory' for actors is deprecated"):
        ray.remote(object_store_memory=100 * 2**20)(A)
    with pytest.warns(DeprecationWarning, match="Setting 'object_store_memory' for actors is deprecated"):
        ray.remote(A).options(object_store_memory=100 * 2**20)


def test_wrappers_read_what_ray_calls_private(ray_session) -> None:
    @ray_session.remote(num_cpus=0, max_restarts=1)
    class Wrapped:
        def plain(self, x, y=2):
            return x

        @ray_session.method(num_returns=2)
        def two(self):
            return 1, 2

        def stream(self):
            yield 1

        def own(self, handle):
            return handle[0]._ray_original_handle

    actor = Wrapped.options(name="wrapped").remote()
    assert [method._num_returns for method in (actor.plain, actor.two, actor.stream)] == [1, 2, "streaming"]
    assert (actor.plain._method_name, actor.plain._actor, actor.stream._is_generator) == ("plain", actor, True)
    assert (actor.plain._decorator, actor.plain._retry_exceptions, actor.plain._generator_backpressure_num_objects) == (None, None, -1)
    assert [parameter.name for parameter in actor.plain._signature][:2] == ["x", "y"]
    assert {"two": 2, "plain": None, "stream": None}.items() <= actor._ray_method_num_returns.items()
    assert {"stream": True, "plain": False}.items() <= actor._ray_method_is_generator.items()
    assert {"plain", "two", "__init__", "__ray_ready__"} <= actor._ray_method_signatures.keys()
    described = actor._ray_actor_creation_function_descriptor
    assert (described.class_name.rpartition(".")[2], described.function_name, described.module_name) == ("Wrapped", "__init__", __name__)
    assert (actor._ray_is_cross_language, actor._ray_method_decorators, actor._ray_weak_ref) == (False, {}, False)
    assert actor._ray_original_handle
    assert not ray_session.get(actor.own.remote([actor]))
    assert not ray_session.get_actor("wrapped")._ray_original_handle
    assert not any(hasattr(each, "_nonsense") for each in (actor, actor.plain))

    @ray_session.remote(num_cpus=0, max_retries=2, num_returns=3)
    def function():
        return 1, 2, 3

    assert (function._num_returns, function._max_retries, function._max_calls, function._num_gpus) == (3, 2, 0, None)
    assert function._default_options == {"num_cpus": 0, "max_retries": 2, "num_returns": 3}
    bare = ray_session.remote(lambda: 1)
    assert (bare._num_returns, bare._max_retries, bare._default_options, hasattr(bare, "_nonsense")) == (None, 3, {}, False)
