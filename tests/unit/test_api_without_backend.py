"""Refs, handles and nodes over a backend that only records its calls: no process is started here."""

from __future__ import annotations

import asyncio
import copy
import gc
import inspect
import itertools
import logging
import os
import pickle
import re
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

import mray
import mray.actor
import mray.experimental
import mray.runtime_context
import mray.util
from mray._api import current
from mray._api.actor import make_handle
from mray._api.backend import Backend
from mray._api.blueprint import ActorBlueprint
from mray._api.signature import CallSignature
from mray._common import ids
from mray._joining.persistent import find
from mray.exceptions import RaySystemError
from mray.experimental import rdt
from mray.util.multiprocessing import Pool


class Token:
    """The token that a backend keeps with a handle."""


class NotingBackend(Backend):
    """Stores values in the process itself and notes calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.values: dict[bytes, Any] = {}
        self.waiting: dict[bytes, list[Callable[[], None]]] = {}
        self.here: dict[str, Any] = {"mode": "driver", "worker_id": bytes(28)}
        self.ended = 0

    def info(self) -> dict[str, Any]:
        return {
            "node_id": b"\x01" * 28,
            "session_dir": "/tmp/s/session_1",
            "session_name": "session_1",
            "node_ip_address": "127.0.0.1",
            "namespace": "ns",
            "job_id": b"\x01\0\0\0",
            "address": "local",
        }

    def shutdown(self) -> None:
        self.ended += 1

    def ref(self, value: Any = None, ready: bool = True) -> mray.ObjectRef:
        ref = mray.ObjectRef(ids.new_object_id(), object())
        if ready:
            self.values[ref.binary()] = value
        return ref

    def complete(self, ref: mray.ObjectRef, value: Any) -> None:
        self.values[ref.binary()] = value
        for callback in self.waiting.pop(ref.binary(), []):
            callback()

    def put(self, value: Any) -> mray.ObjectRef:
        return self.ref(value)

    def get(self, refs: Sequence[mray.ObjectRef], timeout: float | None) -> list[Any]:
        values = [self.values[ref.binary()] for ref in refs]
        for value in values:
            if isinstance(value, BaseException):
                raise value
        return values

    def wait(self, refs: Sequence[mray.ObjectRef], num_returns: int, timeout: float | None) -> tuple[list[Any], list[Any]]:
        ready = [ref for ref in refs if ref.binary() in self.values][:num_returns]
        return ready, [ref for ref in refs if ref not in ready]

    def then(self, ref: mray.ObjectRef, callback: Callable[[], None]) -> None:
        if ref.binary() in self.values:
            callback()
        else:
            self.waiting.setdefault(ref.binary(), []).append(callback)

    def restore_ref(self, object_id: bytes, owner: str) -> mray.ObjectRef:
        self.calls.append(("restore_ref", owner))
        return mray.ObjectRef(object_id, object())

    def export_ref(self, ref: mray.ObjectRef) -> str:
        return "me"

    def submit_task(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]) -> Any:
        assert type(args) is tuple
        self.calls.append(("task", function, args, kwargs, options))
        return self.ref()

    def cancel(self, ref: mray.ObjectRef, force: bool, recursive: bool) -> None:
        self.calls.append(("cancel", force, recursive))

    def create_actor(self, actor_class: Any, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]) -> Any:
        assert type(args) is tuple
        self.calls.append(("actor", actor_class, args, kwargs, options))
        return make_handle(actor_class._blueprint, ids.new_actor_id(), Token(), options)

    def submit_method(
        self, handle: Any, method: Any, args: tuple[Any, ...], kwargs: dict[str, Any], num_returns: Any, options: dict[str, Any] | None
    ) -> Any:
        assert type(args) is tuple
        self.calls.append(("method", method.name, args, kwargs, num_returns, options))
        return self.ref()

    def hold_actor(self, actor_id: bytes) -> Any:
        self.calls.append(("hold", actor_id))
        return Token()

    def export_handle(self, handle: Any) -> None:
        self.calls.append(("export", handle._id))

    def kill_actor(self, handle: Any, no_restart: bool) -> None:
        self.calls.append(("kill", no_restart))

    def get_actor(self, name: str, namespace: str | None) -> Any:
        self.calls.append(("get_actor", name, namespace))

    def query(self, what: str, *arguments: Any) -> Any:
        if what == "named_actors":
            everywhere, namespace = arguments
            actors = [{"name": "a", "namespace": "ns"}, {"name": "b", "namespace": "other"}]
            return [actor for actor in actors if everywhere or actor["namespace"] == namespace]
        if what == "object_locations":
            return [(None if ref.binary() not in self.values else 3, False) for ref in arguments[0]]
        return {"nodes": [{"Alive": True}], "available_resources": {"CPU": 1.0, "GPU": 0.0}, "cluster_resources": {"CPU": 2.0}}[what]

    def context(self) -> dict[str, Any]:
        return self.here

    def exit_actor(self) -> None:
        raise TypeError("exit_actor API is called on a non-actor worker")

    def restore_graph(self, handle: Any) -> Any:
        raise NotImplementedError

    def compile_graph(self, root: Any, **options: Any) -> Any:
        raise NotImplementedError


@pytest.fixture
def backend() -> Iterator[NotingBackend]:
    backend = NotingBackend()
    current.set_backend(backend)
    yield backend
    current.set_backend(None)


@pytest.fixture
def no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ENABLE_AUTO_CONNECT", "0")
    current.set_backend(None)


# ------------------------------------------------------------------------------------------------ tasks
@mray.remote
def add(a: int, b: int = 1) -> int:
    """Adds."""
    return a + b


@mray.remote
def anything(a: int, /, *rest: int, key: int, **others: int) -> None:
    """All kinds of parameters."""


@mray.remote(num_returns=2, num_cpus=0)
def two() -> tuple[int, int]:
    return 1, 2


@mray.remote
def recursive(n: int) -> Any:
    return recursive.remote(n - 1)


class TestTasks:
    def test_a_call_reaches_the_backend(self, backend: NotingBackend) -> None:
        assert isinstance(add.remote(1), mray.ObjectRef)
        assert backend.calls == [("task", add, (1,), {}, add.default_options)]

    def test_options_are_complete_and_the_same_object_each_time(self, backend: NotingBackend) -> None:
        two.remote()
        two.remote()
        assert backend.calls[0][4] is backend.calls[1][4]
        assert (two.default_options["num_returns"], two.default_options["num_cpus"]) == (2, 0)

    @pytest.mark.parametrize(
        ("args", "kwargs", "text"),
        [
            ((), {}, "missing a required argument: 'a'"),
            ((1, 2, 3), {}, "too many positional arguments"),
            ((1,), {"z": 3}, "got an unexpected keyword argument 'z'"),
            ((1,), {"a": 3}, "multiple values for argument 'a'"),
        ],
    )
    def test_wrong_calls_fail_at_once(self, backend: NotingBackend, args: tuple[Any, ...], kwargs: dict[str, Any], text: str) -> None:
        with pytest.raises(TypeError, match=text):
            add.remote(*args, **kwargs)
        with pytest.raises(TypeError, match=text):
            add.options(num_cpus=2).remote(*args, **kwargs)
        with pytest.raises(TypeError, match=text):
            add._remote(args, kwargs)
        assert not backend.calls

    def test_every_kind_of_parameter(self, backend: NotingBackend) -> None:
        anything.remote(1, 2, 3, key=4, more=5)
        assert backend.calls[-1][2:4] == ((1, 2, 3), {"key": 4, "more": 5})
        with pytest.raises(TypeError, match="missing a required.* argument: 'key'"):
            anything.remote(1, 2)

    def test_options_of_a_call(self, backend: NotingBackend) -> None:
        two.options(num_returns=None, name="n").remote()
        options = backend.calls[-1][4]
        assert (options["num_returns"], options["num_cpus"], options["name"]) == (1, 0, "n")
        two._remote([], {}, num_cpus=3)
        assert (backend.calls[-1][4]["num_returns"], backend.calls[-1][4]["num_cpus"]) == (2, 3)
        with pytest.raises(ValueError, match="Invalid option keyword bogus for remote functions"):
            two.options(bogus=1)
        with pytest.raises(ValueError, match=r"Setting 'max_calls' is not supported in '\.options\(\)'\."):
            two.options(max_calls=1)

    def test_it_cannot_be_called_directly(self) -> None:
        name = re.escape(f"{__name__}.add")
        with pytest.raises(TypeError, match=rf"Remote functions cannot be called directly. Instead of running '{name}\(\)', try"):
            add(1)

    def test_it_looks_like_the_function(self) -> None:
        assert add.__doc__ == "Adds."
        assert add.__name__ == "add"
        assert (add.name, add.module, add._function(1, 2)) == ("add", __name__, 3)

    def test_copies_know_that_they_are_the_same_function(self) -> None:
        again = cloudpickle.loads(cloudpickle.dumps(add))
        assert again.uuid == add.uuid
        assert again.export_cache == (None, {})
        assert again.default_options == add.default_options
        assert copy.deepcopy(add) is add

    def test_a_function_that_names_itself_pickles(self) -> None:
        namespace: dict[str, Any] = {"mray": mray, "__name__": "__main__"}
        exec("@mray.remote\ndef f(n, m=3):\n    return f, m\n", namespace)
        for value in (namespace["f"], namespace["f"].function):
            again = pickle.loads(cloudpickle.dumps(value))
            function = getattr(again, "function", again)
            itself, default = function(1)
            assert default == 3
            assert itself.function is function
            assert itself.signature.low == 1

    def test_an_invocation_decorator_gets_the_call(self, backend: NotingBackend) -> None:
        def f(x: int) -> None: ...

        seen = []

        def decorator(invoke: Any) -> Any:
            def wrapped(args: Any, kwargs: Any) -> Any:
                seen.append((args, kwargs))
                return [invoke((5,), {})]

            return wrapped

        f.__ray_invocation_decorator__ = decorator  # type: ignore[attr-defined]
        (ref,) = mray.remote(f).remote(1)
        assert isinstance(ref, mray.ObjectRef)
        assert list(seen[0][0]) == [1]
        assert backend.calls[-1][2] == (5,)


@pytest.mark.parametrize(
    "function",
    [
        lambda: 0,
        lambda a: 0,
        lambda a, b=1: 0,
        lambda a, /, b: 0,
        lambda a, /, **k: 0,
        lambda a=1, /, b=2: 0,
        lambda *a: 0,
        lambda a, *r, b: 0,
        lambda a, *, b=1: 0,
        lambda **k: 0,
        lambda a, b, *r, c, d=1, **k: 0,
    ],
    ids=lambda function: str(inspect.signature(function)),
)
def test_calls_are_right_exactly_when_python_takes_them(function: Callable[..., Any]) -> None:
    signature = CallSignature.of(function)
    for count in range(4):
        for names in itertools.chain.from_iterable(itertools.combinations("abcdz", size) for size in range(4)):
            args, kwargs = (0,) * count, dict.fromkeys(names, 0)
            try:
                function(*args, **kwargs)
            except TypeError:
                right = False
            else:
                right = True
            assert signature.accepts(count, kwargs) is right, (args, kwargs)
            assert kwargs or (signature.low <= count <= signature.high) is right


class TestDecorator:
    @pytest.mark.parametrize("wrong", [lambda: mray.remote()(len), lambda: mray.remote(1), lambda: mray.remote(len, 2)])  # type: ignore[call-overload]
    def test_parentheses_need_options(self, wrong: Callable[[], Any]) -> None:
        with pytest.raises(AssertionError, match=r"The @ray.remote decorator must be applied either with no arguments and no parentheses"):
            wrong()

    def test_only_functions_and_classes(self) -> None:
        with pytest.raises(TypeError, match="must be applied to either a function or a class"):
            mray.remote(len)

    def test_async_functions_are_no_tasks(self) -> None:
        async def f() -> None: ...

        with pytest.raises(ValueError, match="'async def' should not be used for remote tasks"):
            mray.remote(f)

    def test_options_are_checked_there(self) -> None:
        with pytest.raises(TypeError, match="The type of keyword 'max_retries' must be"):
            mray.remote(max_retries=1.5)(lambda: 1)
        with pytest.raises(ValueError, match="for actors"):
            mray.remote(num_returns=2)(Token)


# ----------------------------------------------------------------------------------------------- actors
class Base:
    static = 7

    def inherited(self) -> int:
        return 1


@mray.remote
class Actor(Base):
    """An actor."""

    def __init__(self, a: int = 1) -> None:
        self.a = a

    def m(self, x: int, y: int = 2) -> int:
        return x

    @mray.method(num_returns=2, max_task_retries=3)
    def pair(self) -> tuple[int, int]:
        return 1, 2

    @classmethod
    def of_class(cls, x: int) -> int:
        return x

    @staticmethod
    def free(x: int) -> int:
        return x

    @property
    def prop(self) -> int:
        return 1

    def _private(self) -> int:
        return 1

    def __call__(self, x: int) -> int:
        return x

    def __repr__(self) -> str:
        return "me"


class TestActorClass:
    def test_making_one_reaches_the_backend(self, backend: NotingBackend) -> None:
        handle = Actor.remote(3)
        assert isinstance(handle, mray.actor.ActorHandle)
        assert backend.calls == [("actor", Actor, (3,), {}, Actor._default_options)]

    def test_wrong_constructor_arguments_fail_at_once(self, backend: NotingBackend) -> None:
        with pytest.raises(TypeError, match="too many positional arguments"):
            Actor.remote(1, 2)
        with pytest.raises(TypeError, match="got an unexpected keyword argument 'z'"):
            Actor.options(num_cpus=1).remote(z=1)
        with pytest.raises(TypeError, match="too many positional arguments"):
            mray.remote(Token).remote(1)

    def test_attributes_of_the_class_are_there(self) -> None:
        assert Actor.static == 7
        assert Actor.of_class(3) == Actor.free(3) == 3
        assert Actor.__doc__ == "An actor."
        with pytest.raises(AttributeError, match=r"'ActorClass\(Actor\)' object has no attribute 'nothing'"):
            Actor.nothing  # noqa: B018

    def test_dir_shows_methods_and_verbs(self) -> None:
        @mray.remote
        class Small:
            def x(self) -> None: ...

        assert [name for name in dir(Small) if not name.startswith("_")] == ["bind", "options", "remote", "x"]

    def test_it_can_neither_be_instantiated_nor_subclassed(self) -> None:
        with pytest.raises(TypeError, match=r"Actors cannot be instantiated directly. Instead of 'Actor\(\)', use 'Actor.remote\(\)'."):
            Actor()
        with pytest.raises(mray.actor.ActorClassInheritanceException, match="Attempted to define subclass 'Sub' of actor class 'Actor'"):

            class Sub(Actor):  # type: ignore[valid-type,misc]
                pass

    def test_options(self, backend: NotingBackend) -> None:
        Actor.options(num_gpus=1, name="n").remote()
        assert (backend.calls[-1][4]["num_gpus"], backend.calls[-1][4]["name"]) == (1, "n")
        with pytest.raises(ValueError, match="Invalid option keyword bogus for actors"):
            Actor.options(bogus=1)
        with pytest.raises(ValueError, match="The actor name must be specified to use `get_if_exists`"):
            Actor.options(get_if_exists=True)
        with pytest.raises(ValueError, match="Actor name cannot be an empty string"):
            Actor.options(name="").remote()
        with pytest.raises(ValueError, match='"" is not a valid namespace'):
            Actor.options(namespace="").remote()

    def test_async_classes_are_known(self) -> None:
        class Sync:
            def m(self) -> None: ...

        class Async(Sync):
            async def n(self) -> None: ...

        assert not mray.remote(Sync)._blueprint.is_async
        assert mray.remote(Async)._blueprint.is_async

    def test_a_class_that_names_itself_pickles(self) -> None:
        namespace: dict[str, Any] = {"mray": mray, "__name__": "__main__"}
        exec("@mray.remote\nclass A:\n    def m(self):\n        return A\n", namespace)
        for value in (namespace["A"], namespace["A"]._blueprint.cls):
            again = pickle.loads(cloudpickle.dumps(value))
            cls = again._blueprint.cls if isinstance(again, mray.actor.ActorClass) else again
            assert cls().m()._blueprint.uuid == namespace["A"]._blueprint.uuid


class TestHandle:
    def test_a_method_call_reaches_the_backend(self, backend: NotingBackend) -> None:
        handle = Actor.remote()
        handle.m.remote(1)
        handle.m.remote(1, y=3)
        handle.pair.remote()
        assert backend.calls[1:] == [
            ("method", "m", (1,), {}, 1, None),
            ("method", "m", (1,), {"y": 3}, 1, None),
            ("method", "pair", (), {}, 2, {"max_task_retries": 3}),
        ]

    def test_every_kind_of_method(self, backend: NotingBackend) -> None:
        handle = Actor.remote()
        for call in (handle.inherited, handle._private, handle.__ray_ready__, handle.__ray_terminate__):
            call.remote()
        for call in (handle.of_class, handle.free, handle.__call__):
            call.remote(1)
            with pytest.raises(TypeError, match="too many positional arguments"):
                call.remote(1, 2)
        handle.__ray_call__.remote(lambda self, x: x, 1)
        with pytest.raises(TypeError, match="too many positional arguments"):
            handle.__ray_ready__.remote(1)

    def test_wrong_calls_fail_at_once(self, backend: NotingBackend) -> None:
        handle = Actor.remote()
        with pytest.raises(TypeError, match="missing a required argument: 'x'"):
            handle.m.remote()
        with pytest.raises(TypeError, match="too many positional arguments"):
            handle.m.remote(1, 2, 3)
        with pytest.raises(TypeError, match="got an unexpected keyword argument 'z'"):
            handle.m.options(num_returns=1).remote(1, z=3)
        with pytest.raises(TypeError, match=r"Actor methods cannot be called directly. Instead of running 'object.m\(\)', try"):
            handle.m()

    @pytest.mark.parametrize("name", ["nope", "prop", "static", "a"])
    def test_what_is_no_method_is_no_attribute(self, backend: NotingBackend, name: str) -> None:
        with pytest.raises(AttributeError, match=f"'ActorHandle' object has no attribute '{name}'"):
            getattr(Actor.remote(), name)

    def test_dir_is_exactly_the_methods(self, backend: NotingBackend) -> None:
        methods = {"m", "pair", "of_class", "free", "_private", "inherited", "__call__", "__repr__"}
        assert set(dir(Actor.remote())) == methods | {"__init__", "__ray_ready__", "__ray_call__", "__ray_terminate__"}

    def test_options_of_a_method(self, backend: NotingBackend) -> None:
        handle = Actor.remote()
        handle.pair.options(num_returns=3, name="n").remote()
        assert backend.calls[-1][4:] == (3, {"max_task_retries": 3, "name": "n"})
        handle.pair.options(num_returns=None).remote()
        assert backend.calls[-1][4:] == (2, {"max_task_retries": 3})
        with pytest.raises(ValueError, match=r"num_returns must be >= 0, but got -2\."):
            handle.m.options(num_returns=-2).remote(1)
        with pytest.raises(TypeError, match="got an unexpected keyword argument 'bogus'"):
            handle.m.options(bogus=1)

    def test_identity_and_looks(self, backend: NotingBackend) -> None:
        handle = Actor.remote()
        assert repr(handle) == f"Actor(Actor, {handle._actor_id.hex()})"
        again = pickle.loads(pickle.dumps(handle))
        assert again == handle
        assert hash(again) == hash(handle)
        assert handle != Actor.remote()
        assert copy.copy(handle) is handle
        assert isinstance(again, mray.actor.ActorHandle)

    def test_pickling_holds_the_actor_in_the_other_process(self, backend: NotingBackend) -> None:
        handle = Actor.options(max_task_retries=4).remote()
        again = pickle.loads(pickle.dumps(handle))
        assert backend.calls[-2:] == [("export", handle._id), ("hold", handle._id)]
        assert again._token is not None
        assert again._options["max_task_retries"] == 4

    def test_weak_handles_hold_nothing(self, backend: NotingBackend) -> None:
        weak = make_handle(Actor._blueprint, ids.new_actor_id(), None)
        again = pickle.loads(pickle.dumps(weak))
        assert again._token is None
        assert not backend.calls

    def test_a_process_without_the_class_can_call(self, backend: NotingBackend) -> None:
        class Gone:
            @mray.method(retry_exceptions=[ValueError], max_task_retries=1)
            def m(self, x: int, *, k: int = 1) -> None: ...

            def gen(self) -> Iterator[int]:
                yield 1

        handle = mray.remote(Gone).remote()
        data = pickle.dumps(handle)
        del Gone, handle
        backend.calls.clear()
        gc.collect()
        handle = pickle.loads(data)
        assert handle._blueprint.cls is None
        handle.m.remote(1, k=2)
        assert backend.calls[-1][5] == {"retry_exceptions": "declared", "max_task_retries": 1}
        handle.gen.remote()
        assert backend.calls[-1][4] == "streaming"
        with pytest.raises(TypeError, match="missing a required argument: 'x'"):
            handle.m.remote()
        assert pickle.loads(pickle.dumps(handle))._blueprint is handle._blueprint
        assert ActorBlueprint.from_wire(handle._blueprint.wire()) is handle._blueprint

    def test_a_handle_dies_with_its_last_reference(self, backend: NotingBackend) -> None:
        gc.disable()
        try:
            handle = Actor.remote()
            token = weakref.ref(handle._token)
            handle.m.options(num_returns=1).remote(1)
            handle.m.remote(1)
            method = handle.m
            del handle
            assert token() is not None, "a method keeps its handle"
            method.remote(1)
            del method
            assert token() is None
        finally:
            gc.enable()

    def test_methods_pickle_with_their_handle(self, backend: NotingBackend) -> None:
        handle = Actor.remote()
        method = pickle.loads(pickle.dumps(handle.m))
        method.remote(1)
        assert backend.calls[-1][1] == "m"


class TestMethodDecorator:
    def test_without_options_is_nothing(self) -> None:
        def f(self: Any) -> None: ...

        assert mray.method(f) is f
        assert mray.method()(f) is f

    def test_unknown_options(self) -> None:
        with pytest.raises(AssertionError, match="Unexpected keyword argument to @ray.method: 'foo'"):
            mray.method(foo=1)
        with pytest.raises(ValueError, match=r"num_returns must be >= 0, but got -1\."):
            mray.method(num_returns=-1)


# ---------------------------------------------------------------------------------------------- objects
class TestRefs:
    def test_pickling_asks_the_backend(self, backend: NotingBackend) -> None:
        ref = backend.ref(3)
        again = pickle.loads(pickle.dumps(ref))
        assert again == ref
        assert again is not ref
        assert backend.calls == [("restore_ref", "me")]
        assert copy.copy(ref) is copy.deepcopy(ref) is ref

    def test_object_id_is_its_other_name(self) -> None:
        assert mray.ObjectID is mray.ObjectRef
        assert mray.ObjectRef[int] is not None
        assert repr(mray.ObjectRef.nil()) == f"ObjectRef({'ff' * 28})"

    def test_future(self, backend: NotingBackend) -> None:
        ref = backend.ref(ready=False)
        future = ref.future()
        assert not future.done()
        backend.complete(ref, 5)
        assert future.result(0) == 5
        with pytest.raises(KeyError):
            backend.ref(KeyError("k")).future().result(0)

    def test_on_completed_gets_value_or_error(self, backend: NotingBackend) -> None:
        seen: list[Any] = []
        error = KeyError("k")
        backend.ref(5)._on_completed(seen.append)
        backend.ref(error)._on_completed(seen.append)
        assert seen == [5, error]

    def test_await(self, backend: NotingBackend) -> None:
        pending = backend.ref(ready=False)

        async def main() -> list[Any]:
            asyncio.get_running_loop().call_later(0.01, backend.complete, pending, "late")
            ready = backend.ref("early")
            with pytest.raises(KeyError):
                await backend.ref(KeyError("k"))
            return [await ready, await ready, await pending, await asyncio.gather(ready.as_future(), pending.as_future())]

        assert asyncio.run(main()) == ["early", "early", "late", ["early", "late"]]

    def test_a_cancelled_future_leaves_the_ref_alone(self, backend: NotingBackend) -> None:
        ref = backend.ref(ready=False)

        async def main() -> Any:
            future = ref.as_future()
            future.cancel()
            backend.complete(ref, 1)
            await asyncio.sleep(0)
            return await ref

        assert asyncio.run(main()) == 1

    def test_callbacks_after_the_loop_are_dropped(self, backend: NotingBackend) -> None:
        ref = backend.ref(ready=False)

        async def main() -> Any:
            return ref.as_future()

        future = asyncio.run(main())
        backend.complete(ref, 1)
        assert not future.done()


class TestVerbs:
    def test_get(self, backend: NotingBackend) -> None:
        a, b = backend.ref(1), backend.ref(2)
        assert mray.get(a) == 1
        assert mray.get([b, a, b]) == [2, 1, 2]
        assert mray.get([]) == []

    @pytest.mark.parametrize("wrong", [3, None, (), set()])
    def test_get_takes_a_ref_or_a_list(self, backend: NotingBackend, wrong: Any) -> None:
        with pytest.raises(
            ValueError, match=r"Invalid type of object refs, .*, is given. 'object_refs' must either be an ObjectRef or a list"
        ):
            mray.get(wrong)

    def test_get_takes_lists_of_refs_only(self, backend: NotingBackend) -> None:
        with pytest.raises(TypeError, match=r"Attempting to call `get` on the value 3, which is not an ray.ObjectRef\."):
            mray.get([3])

    def test_put_takes_no_ref(self, backend: NotingBackend) -> None:
        assert mray.get(mray.put([backend.ref(1)]))[0] is not None
        with pytest.raises(TypeError, match="Calling 'put' on an ray.ObjectRef is not allowed"):
            mray.put(backend.ref())

    def test_wait(self, backend: NotingBackend) -> None:
        a, b, c = backend.ref(1), backend.ref(ready=False), backend.ref(3)
        assert mray.wait([a, b, c]) == ([a], [b, c])
        assert mray.wait([a, b, c], num_returns=2, timeout=0, fetch_local=False) == ([a, c], [b])
        assert mray.wait([], num_returns=2) == ([], [])

    def test_wrong_waits(self, backend: NotingBackend) -> None:
        ref = backend.ref(1)
        start = r"wait\(\) expected a list of ray.ObjectRef or ray.ObjectRefGenerator, got "
        cases: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
            (ref, {}, TypeError, start + "a single"),
            ([1], {}, TypeError, start + "list containing <class 'int'>"),
            ((ref,), {}, TypeError, start + "<class 'tuple'>"),
            ([ref, ref], {}, ValueError, "Wait requires a list of unique ray_waitables"),
            ([ref], {"num_returns": 2}, ValueError, "num_returns cannot be greater than the number of ray_waitables"),
            ([ref], {"num_returns": 0}, ValueError, r"Invalid number of objects to return 0\."),
            ([ref], {"timeout": -1}, ValueError, "The 'timeout' argument must be nonnegative. Received -1"),
        ]
        for refs, options, kind, text in cases:
            with pytest.raises(kind, match=text):
                mray.wait(refs, **options)

    def test_kill_and_cancel(self, backend: NotingBackend) -> None:
        handle = Actor.remote()
        mray.kill(handle)
        mray.kill(handle, no_restart=False)
        mray.cancel(backend.ref(), force=True, recursive=False)
        assert backend.calls[1:] == [("kill", True), ("kill", False), ("cancel", True, False)]
        with pytest.raises(ValueError, match=r"ray.kill\(\) only supported for actors. For tasks, try ray.cancel\(\). Got: <class 'str'>"):
            mray.kill("x")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"ray.cancel\(\) only supported for object refs. For actors, try ray.kill\(\)"):
            mray.cancel("x")  # type: ignore[arg-type]
        of_actor = mray.ObjectRef(ids.return_id(ids.new_task_id(ids.new_actor_id()), 1))
        with pytest.raises(ValueError, match="force=True is not supported"):
            mray.cancel(of_actor, force=True)

    def test_get_actor(self, backend: NotingBackend) -> None:
        mray.get_actor("a")
        mray.get_actor("a", "other")
        assert backend.calls == [("get_actor", "a", None), ("get_actor", "a", "other")]
        for wrong in ("", None):
            with pytest.raises(ValueError, match="Please supply a non-empty value to get_actor"):
                mray.get_actor(wrong)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="is not a valid namespace"):
            mray.get_actor("a", "")
        with pytest.raises(TypeError, match=r"namespace must be None or a string\."):
            mray.get_actor("a", 3)  # type: ignore[arg-type]

    def test_listings(self, backend: NotingBackend) -> None:
        assert mray.available_resources() == {"CPU": 1.0}
        assert mray.cluster_resources() == {"CPU": 2.0}
        assert mray.nodes() == [{"Alive": True}]
        assert mray.util.list_named_actors() == ["a"]
        assert mray.util.list_named_actors(all_namespaces=True) == [{"name": "a", "namespace": "ns"}, {"name": "b", "namespace": "other"}]
        backend.here["gpu_ids"] = ["0", 1, "GPU-5"]
        assert mray.get_gpu_ids() == [0, 1, "GPU-5"]
        a, b = backend.ref(1), backend.ref(ready=False)
        assert mray.experimental.get_object_locations([a, b]) == {
            a: {"node_ids": ["01" * 28], "object_size": 3, "did_spill": False},
            b: {"node_ids": [], "object_size": None, "did_spill": False},
        }

    def test_results_as_they_come(self, backend: NotingBackend) -> None:
        refs = [backend.ref(n) for n in range(5)]
        assert sorted(mray.util.as_completed(refs, chunk_size=2)) == [0, 1, 2, 3, 4]
        assert set(mray.util.as_completed(refs, yield_obj_refs=True)) == set(refs)
        assert list(mray.util.map_unordered(add, range(5), backpressure_size=2, chunk_size=1)) == [None] * 5
        with pytest.raises(ValueError, match="chunk_size"):
            next(mray.util.as_completed(refs, chunk_size=0))

    @pytest.mark.parametrize("verb", [mray.timeline, mray.client, lambda: mray.java_function("a", "b"), lambda: mray.java_actor_class("a")])
    def test_what_is_not_there_says_so(self, backend: NotingBackend, verb: Callable[[], Any]) -> None:
        with pytest.raises(NotImplementedError):
            verb()


# --------------------------------------------------------------------------------------------- sessions
@pytest.mark.usefixtures("no_session")
@pytest.mark.parametrize(
    "verb",
    [
        lambda: mray.get([]),
        lambda: mray.put(1),
        lambda: mray.wait([]),
        lambda: mray.kill(None),  # type: ignore[arg-type]
        lambda: mray.cancel(None),  # type: ignore[arg-type]
        lambda: mray.get_actor("a"),
        lambda: mray.get_gpu_ids(),
        lambda: mray.nodes(),
        lambda: mray.cluster_resources(),
        lambda: mray.available_resources(),
        lambda: mray.util.list_named_actors(),
        lambda: add.remote(1),
        lambda: Actor.remote(),
    ],
    ids=["get", "put", "wait", "kill", "cancel", "get_actor", "get_gpu_ids", "nodes", "total", "free", "named", "task", "actor"],
)
def test_nothing_works_before_init_without_auto_connect(verb: Callable[[], Any]) -> None:
    with pytest.raises(RaySystemError, match="Ray has not been started yet"):
        verb()


@pytest.mark.usefixtures("no_session")
def test_what_works_before_init() -> None:
    assert not mray.is_initialized()
    mray.shutdown()
    assert isinstance(mray.get_runtime_context(), mray.runtime_context.RuntimeContext)
    with pytest.raises(RuntimeError, match="Ray hasn't been initialized"):
        mray.experimental.get_object_locations([])
    with pytest.raises(RuntimeError, match="Ray has not been started yet"):
        mray.timeline()
    with pytest.raises(TypeError, match="exit_actor API is called on a non-actor worker"):
        mray.actor.exit_actor()


class TestInit:
    @pytest.fixture(autouse=True)
    def engine(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """`init` starts a backend that only notes."""
        monkeypatch.setattr("mray._api.init.start", self.start)
        self.options: Any = None
        yield
        current.set_backend(None)

    def start(self, options: Any) -> NotingBackend:
        self.options = options
        backend = NotingBackend()
        current.set_backend(backend)
        return backend

    def test_returns_the_session_info(self) -> None:
        with mray.init(num_cpus=2, namespace="ns") as context:
            assert mray.is_initialized()
            assert context["node_id"] == context.address_info["node_id"] == "01" * 28
            assert "session_dir" in context
            assert context.get("foo") is None
            assert context.get("address") == "local"
            assert set(context) == set(context.keys()) == set(context.address_info)
            with pytest.raises(KeyError, match="foo"):
                context["foo"]
            assert repr(context).startswith("RayContext(")
        assert not mray.is_initialized()
        context.disconnect()

    def test_twice_is_an_error(self, caplog: pytest.LogCaptureFixture) -> None:
        mray.init("local")
        with pytest.raises(RuntimeError, match=r"Maybe you called ray.init twice by accident\?"):
            mray.init()
        with caplog.at_level(logging.INFO, "mray"):
            assert mray.init(ignore_reinit_error=True)["address"] == "local"
        assert "Calling ray.init() again" in caplog.text

    def test_unknown_arguments_are_named(self) -> None:
        with pytest.raises(RuntimeError, match=r"Unknown keyword argument\(s\): foo, bar"):
            mray.init(foo=1, bar=2)

    def test_meaningless_arguments_are_accepted_and_said(self, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.DEBUG, "mray"):
            mray.init(include_dashboard=False, dashboard_port=1, configure_logging=True, logging_level="debug")
        assert "dashboard_port, include_dashboard" in caplog.text
        logging.getLogger("mray").setLevel(logging.NOTSET)

    def test_every_argument_of_rays_is_taken(self) -> None:
        names = """
            local_mode include_dashboard dashboard_host dashboard_port job_config configure_logging logging_format logging_config
            enable_resource_isolation cgroup_path system_reserved_cpu system_reserved_memory proxy_server_url _metrics_export_port
            _temp_dir _memory _system_config _node_name labels resources object_store_memory log_to_driver
        """
        given = dict.fromkeys(names.split())
        mray.init(**given)  # type: ignore[arg-type]
        assert mray.is_initialized()

    def test_options_reach_the_engine(self) -> None:
        mray.init(num_cpus=3, num_gpus=1, resources={"a": 2}, _temp_dir="/x", _memory=100, preload=["json"], log_to_driver=False)
        options = self.options
        assert (options.num_cpus, options.num_gpus, options.resources, options.memory) == (3, 1, {"a": 2}, 100)
        assert (options.temp_dir, options.preload, options.log_to_driver, options.backend) == ("/x", ("json",), False, "native")

    @pytest.mark.parametrize(
        ("address", "kind"), [("auto", ConnectionError), ("ray://h:1", ConnectionError), ("/x/y", ConnectionError), ("1.2.3", ValueError)]
    )
    def test_there_is_nothing_to_connect_to(self, address: str, kind: type[Exception], tmp_path: Path) -> None:
        with pytest.raises(kind):
            find(address, str(tmp_path))

    def test_the_address_reaches_the_engine_and_what_only_a_new_session_can_have(self, monkeypatch: pytest.MonkeyPatch) -> None:
        mray.init("auto", num_cpus=1)
        assert self.options.address == "auto"
        assert self.options.conflict == "When connecting to an existing cluster, num_cpus and num_gpus must not be provided."
        current.set_backend(None)
        monkeypatch.setenv("RAY_ADDRESS", "local")
        mray.init(namespace="n")
        assert (self.options.address, self.options.conflict) == ("local", None)

    def test_the_first_call_starts_a_session(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("RAY_ENABLE_AUTO_CONNECT", raising=False)
        current.set_backend(None)
        monkeypatch.setattr("mray._api.current.start", self.start)
        add.remote(1)
        assert self.options is not None
        assert mray.is_initialized()

    def test_shutdown_is_idempotent(self) -> None:
        mray.init()
        backend = current.current_backend()
        mray.shutdown()
        mray.shutdown()
        assert isinstance(backend, NotingBackend)
        assert backend.ended == 1

    def test_a_forked_process_has_no_session(self) -> None:
        mray.init()
        pid = os.fork()
        if pid == 0:
            try:
                mray.put(1)
            except RaySystemError as error:
                os._exit(0 if "forked" in str(error) and not mray.is_initialized() else 2)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


# ---------------------------------------------------------------------------------------------- context
class TestContext:
    def test_in_the_driver(self, backend: NotingBackend) -> None:
        context = mray.get_runtime_context()
        assert context.get_job_id() == "01000000"
        assert context.get_node_id() == "01" * 28
        assert context.namespace == "ns"
        assert context.get_session_name() == "session_1"
        assert context.get_task_id() is context.get_actor_id() is context.get_task_name() is context.get_actor_name() is None
        assert context.get_accelerator_ids()["GPU"] == []
        assert context.get_runtime_env_string() == "{}"
        with pytest.raises(RuntimeError, match=r"This method is only available in an actor\."):
            context.current_actor  # noqa: B018
        with pytest.raises(AssertionError, match="only available when the process is a worker"):
            context.get_assigned_resources()
        with pytest.raises(RuntimeError, match="only available when the process is a worker"):
            context.is_canceled()

    def test_in_an_actor(self, backend: NotingBackend) -> None:
        actor_id, task_id = ids.new_actor_id(), ids.new_task_id()
        backend.here.update(
            mode="worker",
            actor_id=actor_id,
            task_id=task_id,
            actor_name="",
            task_name="A.m",
            function_name="mod.A.m",
            actor_class=Base,
            resources={"CPU": 1},
            gpu_ids=[1],
            restarted=True,
            runtime_env={"env_vars": {"A": "b"}},
        )
        context = mray.get_runtime_context()
        assert (context.get_actor_id(), context.get_task_id(), context.get_actor_name()) == (actor_id.hex(), task_id.hex(), "")
        assert context.get_assigned_resources() == {"CPU": 1.0}
        assert {kind: found for kind, found in context.get_accelerator_ids().items() if found} == {"GPU": ["1"]}
        with pytest.warns(DeprecationWarning, match="deprecated"):
            assert context.was_current_actor_reconstructed
        assert context.runtime_env == {"env_vars": {"A": "b"}}
        assert context.current_actor._id == actor_id
        assert context.current_actor._token is None
        assert "inherited" in dir(context.current_actor)
        assert not context.is_canceled()
        with pytest.warns(DeprecationWarning, match="Use get_xxx_id"):
            assert context.get()["task_id"] == ids.TaskID(task_id)

    @pytest.mark.parametrize("name", ["job_id", "node_id", "worker_id", "task_id", "actor_id", "current_placement_group_id"])
    def test_properties_are_deprecated(self, backend: NotingBackend, name: str) -> None:
        backend.here.update(mode="worker", task_id=ids.new_task_id())
        with pytest.warns(DeprecationWarning, match=f"Use get_.*{name.split('_')[-2]}"):
            getattr(mray.get_runtime_context(), name)


# -------------------------------------------------------------------------------------------- the module
def test_the_functions_of_the_module_are_rays() -> None:
    wanted = (
        "init is_initialized remote get wait put kill cancel get_actor get_gpu_ids shutdown method nodes timeline cluster_resources "
        "available_resources java_function java_actor_class client get_runtime_context __getattr__"
    )
    functions = {name for name in dir(mray) if inspect.isfunction(getattr(mray, name))}
    assert functions == set(wanted.split())
    assert not [name for name in dir(mray) if isinstance(getattr(mray, name), str) and not name.startswith("__")]


def test_a_missing_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'mray' has no attribute 'nothing'"):
        mray.nothing  # noqa: B018


def test_subpackages_come_when_they_are_named() -> None:
    program = "import sys, mray; before = 'mray.util' in sys.modules; mray.util; print(before, 'mray.util' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "False True\n"


def test_no_warning_at_import() -> None:
    program = "import mray, mray.util, mray.experimental, mray.actor"
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_free_threaded_python_is_refused_at_once_with_one_sentence() -> None:
    program = "import sys; sys.abiflags = 't'; import mray"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1].startswith("ImportError: mray does not run on free-threaded builds of Python")


# ------------------------------------------------------------------------------------------------ what is refused
@pytest.mark.parametrize(
    ("verb", "args", "lack"),
    [
        ("wait_until", (bool, None), "waits for refs only"),
        ("read_along", (), "waits for refs only"),
        ("wake", (), "waits for refs only"),
        ("call_later", (0.0, gc.collect), "has no timers"),
        ("create_placement_group", ([{"CPU": 1.0}], "PACK", "", False, None), "has no placement groups"),
        ("remove_placement_group", (b"",), "has no placement groups"),
        ("placement_group_ready", (b"", None), "has no placement groups"),
        ("wait_placement_group", (b"", 0.0), "has no placement groups"),
        ("on_out_of_scope", (None, gc.collect), "does not report when an object goes out of scope"),
        ("timeline", (None,), "records no events of tasks"),
    ],
)
def test_an_engine_names_itself_and_what_it_lacks(backend: NotingBackend, verb: str, args: tuple[Any, ...], lack: str) -> None:
    with pytest.raises(NotImplementedError, match=rf"^NotingBackend {lack}\.$"):
        getattr(backend, verb)(*args)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: mray.java_function("A", "f"), r"java_function\(\) needs workers in Java; mray's are Python"),
        (lambda: mray.java_actor_class("A"), r"java_actor_class\(\) needs workers in Java; mray's are Python"),
        (lambda: rdt.register_nixl_memory(None), r"^register_nixl_memory\(\) is not available: .*NIXL"),
        (lambda: rdt.deregister_nixl_memory(None), r"^deregister_nixl_memory\(\) is not available: .*NIXL"),
        (lambda: rdt.register_nixl_memory_pool(1, None), r"^register_nixl_memory_pool\(\) is not available: .*NIXL"),
        (lambda: rdt.set_nixl_cuda_stream(None), r"^set_nixl_cuda_stream\(\) is not available: .*NIXL"),
    ],
)
def test_a_verb_that_mray_has_no_use_for_says_why(call: Callable[[], Any], text: str) -> None:
    with pytest.raises(NotImplementedError, match=text):
        call()


def test_a_decorator_of_a_method_takes_no_positional_option() -> None:
    with pytest.raises(AssertionError, match="The @ray.method decorator takes keyword arguments only"):
        mray.method(2)


def test_a_task_does_not_ask_whether_its_actor_was_restarted(backend: NotingBackend) -> None:
    backend.here = {"mode": "worker", "actor_id": None}
    with (
        pytest.warns(DeprecationWarning, match="state that __init__ sets"),
        pytest.raises(AssertionError, match="should't be called inside Ray tasks"),
    ):
        _ = mray.get_runtime_context().was_current_actor_reconstructed


@pytest.mark.parametrize("verb", ["_get_next_ref_n", "_consume_next_ref_n"])
@pytest.mark.parametrize("number", [0, -1])
def test_a_generator_is_asked_for_at_least_one_item(verb: str, number: int) -> None:
    with pytest.raises(ValueError, match="num_refs must be positive"):
        getattr(mray.ObjectRefGenerator(None, None), verb)(number)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"backpressure_size": 0}, r"backpressure_size must be positive\."),
        ({"num_returns": 2}, "Use the `chunk_size` argument instead of `num_returns`"),
    ],
)
def test_a_map_over_results_refuses_what_leads_nowhere(backend: NotingBackend, options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        next(mray.util.map_unordered(add, [1], **options))
    assert not backend.calls


def test_a_pool_without_any_work_for_a_process_is_refused_before_it_starts(no_session: None) -> None:
    with pytest.raises(ValueError, match="maxtasksperchild must be a positive int or None"):
        Pool(1, maxtasksperchild=0)
    assert not mray.is_initialized()
