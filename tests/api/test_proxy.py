"""Remote variables, the seed's examples first. Runs with mray and with real Ray passed to the factory."""

from __future__ import annotations

import asyncio
import math
import os
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from mray.proxy import IRemoteInterpreter, RemoteInterpreterFactory, StepFailed, Var, VarReleasedError


@pytest.fixture
def rif(ray_session: ModuleType) -> RemoteInterpreterFactory:
    return RemoteInterpreterFactory(ray_session)


@pytest.fixture
def env(rif: RemoteInterpreterFactory, request: pytest.FixtureRequest) -> Iterator[IRemoteInterpreter]:
    yield rif.create(num_cpus=0)
    # Else the last test of a file would keep it until the session has ended, and with it the thread that delivers.
    request.node.funcargs.pop("env")


# ------------------------------------------------------------------------------------------- the seed
def test_the_first_example_of_ray_proxy_works_line_by_line(ray_session: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    ray = ray_session
    rif = RemoteInterpreterFactory(ray)
    env: IRemoteInterpreter = rif.create(num_cpus=1)
    x = env.put("x")
    n = env.put(10)
    f = env.put(lambda x: x * 2)
    print(x)
    print(n)
    host = env.get_host()
    assert capsys.readouterr().out == f"Var@{host}[{env.id[:5]}]:x\nVar@{host}[{env.id[:5]}]:10\n"
    assert isinstance(x, Var)
    assert x == "x"
    nx = x * n
    assert isinstance(nx, Var)
    assert nx == "xxxxxxxxxx" == x * 10
    assert f(x) == "xx"
    assert x.fetch() == "x"
    assert f(x).fetch() == f(x) == x * 2 == "xx"
    items = []
    for item in nx:
        assert isinstance(item, Var)
        items.append(item.fetch())
    assert items == ["x"] * 10


def test_two_interpreters_make_a_pipeline(rif: RemoteInterpreterFactory) -> None:
    numpy = pytest.importorskip("numpy")
    env1, env2 = rif.create(num_cpus=0), rif.create(num_cpus=0)
    x1 = env1.put(numpy).arange(10)
    x2 = env2.put(numpy).arange(10)
    y = x1 + x2
    assert y.env.id == x1.env.id
    assert y.fetch().tolist() == [2 * number for number in range(10)]


def test_the_result_lives_with_the_operand_that_has_the_operator(rif: RemoteInterpreterFactory) -> None:
    class Plain:
        pass

    class Adds:
        def __radd__(self, other: Any) -> str:
            return f"{type(other).__name__} + me"

    env1, env2 = rif.create(num_cpus=0), rif.create(num_cpus=0)
    left, right = env1.put(Plain()), env2.put(Adds())
    total = left + right
    assert total.env is env2
    assert total.fetch() == "Plain + me"
    assert (env1.put(1) + env2.put(2)).env is env1
    assert (5 - env2.put(3)).env is env2
    assert (5 - env2.put(3)).fetch() == 2


def test_torch_runs_there(env: IRemoteInterpreter) -> None:
    torch = pytest.importorskip("torch")
    r_torch = env.put(torch)
    r_x = r_torch.arange(10)
    r_x += 1
    assert r_x.cpu().fetch().tolist() == list(range(1, 11))
    assert isinstance(torch.sum(r_x), Var)
    assert torch.sum(r_x).item().fetch() == 55
    assert (torch.ones(10, dtype=torch.int64) + r_x).fetch().tolist() == list(range(2, 12))
    assert torch.nn.functional.relu(r_x - 5).fetch().tolist() == [0, 0, 0, 0, 0, 1, 2, 3, 4, 5]
    assert torch.stack([r_x, r_x]).shape[0].fetch() == 2


# ----------------------------------------------------------------------------------------- operators
VALUES = {
    "add": (7, 3), "sub": (7, 3), "mul": (7, 3), "truediv": (7, 2), "floordiv": (7, 2), "mod": (7, 4), "divmod": (7, 4), "pow": (7, 3),
    "lshift": (7, 3), "rshift": (7, 1), "and": (7, 10), "or": (7, 10), "xor": (7, 10),
    "lt": (7, 3), "le": (7, 7), "eq": (7, 7), "ne": (7, 3), "gt": (7, 3), "ge": (3, 7),
}  # fmt: skip


def test_operators_compute_what_they_compute_here(env: IRemoteInterpreter) -> None:
    import operator as op

    functions = {"divmod": divmod, "pow": pow, "and": op.and_, "or": op.or_}
    for name, (left, right) in VALUES.items():
        function = functions.get(name) or getattr(op, name)
        wanted = function(left, right)
        remote_left, remote_right = env.put(left), env.put(right)
        for result in (function(remote_left, right), function(left, remote_right), function(remote_left, remote_right)):
            assert isinstance(result, Var), name
            assert result.fetch() == wanted, name
    for name in ("neg", "pos", "abs", "invert"):
        assert getattr(op, name)(env.put(-7)).fetch() == getattr(op, name)(-7), name
    assert pow(env.put(7), 3, 5).fetch() == 3
    assert round(env.put(2.567), 2).fetch() == 2.57
    assert [f(env.put(2.5)).fetch() for f in (math.floor, math.ceil, math.trunc, round)] == [2, 3, 2, 2]


def test_operators_in_place_change_the_object(env: IRemoteInterpreter) -> None:
    values = env.put([1])
    same = values
    values += [2]
    values *= 2
    assert same.fetch() == [1, 2, 1, 2]
    number = env.put(7)
    for change in ("number += 3", "number -= 1", "number *= 2", "number //= 4", "number **= 2", "number %= 7", "number <<= 4",
                   "number >>= 1", "number |= 3", "number &= 6", "number ^= 1", "number /= 2"):  # fmt: skip
        scope, here = {"number": number}, {"number": number.fetch()}
        exec(change, scope)
        exec(change, here)
        number = scope["number"]
        assert isinstance(number, Var)
        assert number.fetch() == here["number"], change


def test_what_python_wants_at_once_is_there_at_once(env: IRemoteInterpreter) -> None:
    assert bool(env.put([])) is False
    assert bool(env.put([0])) is True
    assert len(env.put("abc")) == 3
    assert (int(env.put(2.9)), float(env.put(2)), complex(env.put(1))) == (2, 2.0, 1 + 0j)
    assert [10, 20, 30][env.put(1)] == 20
    assert 2 in env.put([1, 2]) and 3 not in env.put([1, 2])
    assert bytes(env.put(bytearray(b"ab"))) == b"ab"
    assert f"{env.put(1.23456):.2f}" == "1.23"
    assert len({env.put(1), env.put(1)}) == 2


def test_items_slices_and_attributes_are_read_written_and_deleted(env: IRemoteInterpreter) -> None:
    class Thing:
        def __init__(self) -> None:
            self.list = [1, 2, 3, 4]

    thing = env.put(Thing)()
    thing.list[0] = 10
    thing.list[1:3] = [env.put(7)]
    del thing.list[-1]
    assert thing.list.fetch() == [10, 7]
    thing.name = "a" + env.put("b")
    thing.name += "c"
    assert thing.name.fetch() == "abc"
    del thing.name
    assert not hasattr(thing, "name")
    table = env.put({})
    table[env.put("k")] = {"nested": [env.put(1), (env.put(2),)]}
    assert table.fetch() == {"k": {"nested": [1, (2,)]}}


def test_calls_take_keyword_arguments_and_variables_anywhere(env: IRemoteInterpreter) -> None:
    @env.function
    def f(a: Any, b: Any = 0, *rest: Any, **named: Any) -> Any:
        return a, b, rest, named

    one = env.put(1)
    assert f(one, b=[one, {"x": one}], c=one).fetch() == (1, [1, {"x": 1}], (), {"c": 1})
    assert f(1, 2, one, operation=3, self=4).fetch() == (1, 2, (1,), {"operation": 3, "self": 4})
    assert env.run(max, (one, 5)).fetch() == 5


def test_unpacking_and_iteration_stop_where_the_object_stops(env: IRemoteInterpreter) -> None:
    a, (b, c), *rest = env.put([1, (2, 3), 4, 5])
    assert [x.fetch() for x in (a, b, c, *rest)] == [1, 2, 3, 4, 5]
    assert [x.fetch() for x in env.put(list(range(1000)))] == list(range(1000))
    assert [x.fetch() for x in reversed(env.put([1, 2]))] == [2, 1]
    with pytest.raises(ValueError, match="too many"):
        a, b = env.put([1, 2, 3])
    iterator = env.put(iter([1]))
    assert next(iterator).fetch() == 1
    with pytest.raises(StopIteration):
        next(iterator)


def test_a_generator_runs_only_as_far_as_it_is_asked(env: IRemoteInterpreter) -> None:
    log = env.put([])

    @env.function
    def numbers(log: list[Any]) -> Any:
        try:
            for number in range(5):
                log.append(number)
                yield number
                if number == 2:
                    raise ValueError("after 2")
        finally:
            log.append("end")

    for item in numbers(log):
        if item == 1:
            break
    del item
    assert log.fetch() == [0, 1, "end"]
    items = iter(numbers(log))
    assert [next(items).fetch() for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="after 2"):
        next(items)


def test_with_enters_and_leaves_there(env: IRemoteInterpreter) -> None:
    class Guard:
        def __init__(self) -> None:
            self.log: list[Any] = []

        def __enter__(self) -> str:
            self.log.append("in")
            return "entered"

        def __exit__(self, kind: Any, error: Any, _traceback: Any) -> bool:
            self.log.append(kind.__name__ if kind else None)
            return kind is KeyError

    guard = env.put(Guard)()
    with guard as entered:
        assert entered == "entered"
    with guard:
        raise KeyError("swallowed")
    with pytest.raises(ValueError), guard:
        raise ValueError
    assert guard.log.fetch() == ["in", None, "in", "KeyError", "in", "ValueError"]


def test_await_gives_values_and_runs_coroutines_there(env: IRemoteInterpreter) -> None:
    class Door:
        async def __aenter__(self) -> str:
            return "open"

        async def __aexit__(self, kind: Any, _error: Any, _traceback: Any) -> bool:
            return kind is KeyError

        async def count(self, to: int) -> Any:
            for number in range(to):
                yield number

        async def double(self, x: int) -> int:
            return 2 * x

    async def main() -> None:
        door = env.put(Door)()
        assert await env.put(5) == 5
        assert await door.double(21) == 42
        assert await asyncio.gather(door.double(1), door.double(2)) == [2, 4]
        async with door as entered:
            assert await entered == "open"
            raise KeyError
        assert [await number async for number in door.count(3)] == [0, 1, 2]
        with pytest.raises(ZeroDivisionError):
            await (env.put(1) / 0)

    asyncio.run(main())


# ---------------------------------------------------------------------------------------- attributes
class Model:
    """A doc."""

    size = 3

    def __init__(self) -> None:
        self.weights = [1.0, 2.0]

    def forward(self, x: Any, scale: int = 1) -> Any:
        return [x * weight * scale for weight in self.weights]

    def _repr_html_(self) -> str:
        return "<b>model</b>"


def test_hasattr_and_getattr_with_a_default_know_at_once(env: IRemoteInterpreter) -> None:
    model = env.put(Model)()
    assert hasattr(model, "weights") and hasattr(model, "forward")
    assert not hasattr(model, "nothing")
    assert getattr(model, "nothing", 5) == 5
    assert getattr(model, "size", 5).fetch() == 3
    with pytest.raises(AttributeError, match="nothing"):
        getattr(model, "nothing")  # noqa: B009
    lazily = model.nothing.at.all
    with pytest.raises(AttributeError, match="'Model' object has no attribute 'nothing'"):
        lazily.fetch()


def test_dir_completion_and_notebook_texts_are_the_object_s(env: IRemoteInterpreter) -> None:
    model = env.put(Model())
    assert {"weights", "forward", "size"} <= set(dir(model))
    completer = pytest.importorskip("rlcompleter").Completer({"model": model})
    assert any(found.startswith("model.weights") for found in completer.attr_matches("model.wei"))
    assert model._repr_html_() == "<b>model</b>"
    assert model._repr_png_() is None
    assert model._repr_mimebundle_() is None
    assert not hasattr(model, "_ipython_display_")


def test_numpy_does_the_sensible_thing(env: IRemoteInterpreter) -> None:
    numpy = pytest.importorskip("numpy")
    array = env.import_("numpy").arange(4)
    assert numpy.asarray(array).tolist() == [0, 1, 2, 3]
    assert numpy.asarray(array, dtype=float).dtype == float
    assert isinstance(numpy.mean(array), Var)
    assert numpy.mean(array).fetch() == 1.5
    assert isinstance(numpy.ones(4) + array, Var)
    assert (numpy.ones(4) + array).fetch().tolist() == [1, 2, 3, 4]
    assert numpy.concatenate([array, array]).shape.fetch() == (8,)
    here = numpy.ones(4)
    here += array
    assert isinstance(here, numpy.ndarray)
    assert here.tolist() == [1, 2, 3, 4]


# --------------------------------------------------------------------------------------------- names
def test_named_instances_stay_until_their_name_goes(env: IRemoteInterpreter) -> None:
    env["a"] = [1]
    b = env.put_named("b", "bee")
    unnamed = env.put("gone")
    assert "a" in env and "c" not in env
    assert env.instance_names() == ["a", "b"]
    assert {name: var.fetch() for name, var in env.get_named_instances().items()} == {"a": [1], "b": "bee"}
    env["a"].append(2)
    env.delete_unnamed_vars()
    assert env["a"].fetch() == [1, 2]
    with pytest.raises(VarReleasedError):
        unnamed.fetch()
    with pytest.raises(VarReleasedError):
        b.fetch()
    assert env["b"].fetch() == "bee"
    env.del_named("b")
    del env["a"]
    assert env.instance_names() == []
    with pytest.raises(KeyError, match="b"):
        env["b"]


def test_the_factory_finds_interpreters_by_name(rif: RemoteInterpreterFactory) -> None:
    env = rif.create(name="here", num_cpus=0)
    env["x"] = 5
    assert rif.get("here") is env
    assert rif["here"]["x"].fetch() == 5
    assert rif.get_or_create("here", num_cpus=0).id == env.id
    other = rif.get_or_create("there", num_cpus=0)
    assert other.id != env.id
    rif.destroy("there")
    with pytest.raises(ValueError, match="nowhere"):
        rif.get("nowhere")


def test_operations_by_id_are_those_of_variables(env: IRemoteInterpreter, ray_session: ModuleType) -> None:
    x = env.put([3, 1, 2])
    assert env.getitem_id(x.id, 0).fetch() == 3
    env.setitem_id(x.id, 0, 30)
    assert env.method_call_id(x.id, "index", (1,)).fetch() == 1
    assert env.operator_call_id(x.id, "__len__").fetch() == 3
    assert env.attr_id(x.id, "count")(30).fetch() == 1
    assert env.call_id(env.put(sum).id, (x,)).fetch() == 33
    assert env.func_on_id(x.id, sorted).fetch() == [1, 2, 30]
    assert env.type_of_id(x.id).__name__ == "list"
    assert "append" in env.dir_of_id(x.id)
    assert ray_session.get(env.fetch_id(x.id)) == [30, 1, 2]
    copied = env.copy_of_id(x.id)
    copied.append(4)
    assert len(x) == 3
    assert [item.fetch() for item in env.iter_of_id(x.id)] == [30, 1, 2]
    assert env.put_if_needed(x) is x


def test_modules_are_imported_there(env: IRemoteInterpreter) -> None:
    assert env.module("os").getpid().fetch() == env.status()["pid"] != os.getpid()
    assert env.import_("os.path").join("a", "b").fetch() == "a/b"
    assert env.put(sys).modules["os"].getpid().fetch() == env.status()["pid"]
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        env.module("no_such_module").x.fetch()


def test_cells_share_their_names_with_the_named_instances(env: IRemoteInterpreter) -> None:
    env["base"] = 10
    assert env.execute("def add(x):\n    return base + x\nadd(1)").fetch() == 11
    env["base"] = 20
    assert env["add"](1).fetch() == 21
    assert env.execute("y = 3").fetch() is None
    with pytest.raises(ZeroDivisionError) as caught:
        env.execute("z = 1\nz / 0")
    assert "<remote cell" in str(caught.value.__cause__) and "z / 0" in str(caught.value.__cause__)


# -------------------------------------------------------------------------------------------- errors
class OurError(Exception):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code

    def __reduce__(self) -> Any:
        return OurError, (self.code, str(self))


def fail(code: int) -> None:
    raise OurError(code, "on purpose")


def test_an_error_arrives_as_itself_and_names_its_step(env: IRemoteInterpreter) -> None:
    x = env.put(fail)(7)
    last = (x + 1).attribute[3]
    with pytest.raises(OurError, match="on purpose") as caught:
        last.fetch()
    assert type(caught.value) is OurError
    assert caught.value.code == 7
    cause = caught.value.__cause__
    assert isinstance(cause, StepFailed)
    assert "call fail(7)" in cause.step
    assert "in fail" in cause.remote_traceback
    for use in (bool, len, iter_all, repr, str, dir):
        with pytest.raises(OurError):
            use(last)


def iter_all(var: Any) -> list[Any]:
    return list(var)


def test_an_error_without_a_variable_shows_with_the_next_answer(env: IRemoteInterpreter) -> None:
    values = env.put([1])
    values[10] = 1
    with pytest.raises(IndexError, match="assignment index out of range"):
        values.fetch()
    assert values.fetch() == [1]


def test_an_error_that_nobody_looked_at_is_not_lost(env: IRemoteInterpreter, eventually: Any) -> None:
    env.put(fail)(3)
    caught = []

    def told() -> bool:
        try:
            env.put(1).fetch()
        except OurError as error:
            caught.append(error.code)
        return bool(caught)

    eventually(told)
    assert env.put(1).fetch() == 1


def test_what_cannot_be_pickled_raises_here_and_harms_nothing(env: IRemoteInterpreter) -> None:
    import threading

    x = env.put(1)
    y = x + 1
    with pytest.raises(Exception, match="pickle"):
        env.put(threading.Lock())
    assert (y + 1).fetch() == 3
    lock = env.module("threading").Lock()
    with pytest.raises(Exception, match="pickle"):
        lock.fetch()
    assert lock.locked().fetch() is False


class OfGpu:
    """Unpickles as torch does with a tensor of a GPU where there is none."""

    def __reduce__(self) -> Any:
        return raise_as_torch, ()


def raise_as_torch() -> None:
    raise RuntimeError("Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False. ...")


def test_a_tensor_of_a_gpu_says_what_to_write_where_there_is_none(env: IRemoteInterpreter) -> None:
    tensor = env.run(OfGpu)
    with pytest.raises(RuntimeError, match=r"this process has no GPU to put it on: write v\.cpu\(\)\.fetch\(\)"):
        tensor.fetch()

    async def wait() -> None:
        await tensor

    with pytest.raises(RuntimeError, match=r"write v\.cpu"):
        asyncio.run(wait())


def test_an_exception_that_cannot_be_pickled_still_says_what_it_was(env: IRemoteInterpreter) -> None:
    @env.function
    def fail_oddly() -> None:
        import threading

        raise ValueError(threading.Lock())

    with pytest.raises(RuntimeError, match="ValueError: <unlocked"):
        fail_oddly().fetch()


def test_arrays_that_were_put_stay_the_arrays_they_were(env: IRemoteInterpreter) -> None:
    numpy = pytest.importorskip("numpy")
    rows = numpy.arange(6).reshape(2, 3)
    table = [rows, {"again": (rows,)}]
    there = env.put([table, table])
    assert len(table) == 2 and table[0] is rows
    assert env.put(lambda tables: tables[0] is tables[1] and tables[0][0] is tables[0][1]["again"][0])(there).fetch()
    assert env.put(lambda array: array.flags.f_contiguous and array.flags.writeable)(env.put(numpy.asfortranarray(rows))).fetch()


def test_arrays_that_were_put_can_be_written_to(env: IRemoteInterpreter, rif: RemoteInterpreterFactory) -> None:
    numpy = pytest.importorskip("numpy")
    x = env.put(numpy.zeros(3))
    x += 1
    env["state"] = state = {"arrays": [numpy.zeros(100_000)], "numbers": (1, 2)}
    env["state"]["arrays"][0][5] = 7
    there = rif.create(num_cpus=0).put(x)
    there[0] = 9
    assert (x.fetch().tolist(), there.fetch().tolist()) == ([1, 1, 1], [9, 1, 1])
    assert env["state"]["arrays"][0].sum().fetch() == 7
    assert state["arrays"][0].sum() == 0
