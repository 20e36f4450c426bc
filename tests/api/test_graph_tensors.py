"""Values on the edges of compiled graphs: tensors and large arrays, what is copied and what is not."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

PRELOAD = ["torch"]

LARGE = 1 << 18


@pytest.fixture
def actor(ray_session):
    """Makes an actor with the methods that the tests call."""
    ray = ray_session

    class Actor:
        def __init__(self):
            self.kept = []

        def echo(self, value):
            return value

        def slice(self, value):
            return value[100:]

        def wrap(self, value):
            return {"value": value, "more": [1, "text"]}

        def describe(self, value):
            return type(value).__name__, str(value.dtype), tuple(value.shape), float(value.double().sum())

        def keep(self, value):
            self.kept.append(value)
            return len(self.kept)

        def sums(self):
            return [float(value.double().sum()) for value in self.kept]

        def increment(self, value):
            value += 1
            return float(value.double().sum())

        def increment_and_return(self, value):
            value += 1
            return value

        def make(self, requires_grad):
            return torch.ones(3, requires_grad=requires_grad) * 2

        def load(self, refs):
            return ray.get(refs[0])

        def modules(self, value):
            return sorted({"numpy", "torch"} & set(sys.modules))

    return ray.remote(Actor)


@pytest.fixture
def compiled(ray_session):
    """Compiles a graph of the input; tears it down at the end."""
    graphs = []

    def build_graph(build, **options):
        with ray_session.dag.InputNode() as value_in:
            root = build(value_in)
        graph = root.experimental_compile(_buffer_size_bytes=8 << 20, **options)
        graphs.append(graph)
        return graph

    yield build_graph
    for graph in graphs:
        graph.teardown()


def tensors():
    base = torch.arange(24.0).reshape(4, 6)
    return {
        "float": base,
        "half": base.half(),
        "bfloat16": base.bfloat16(),
        "byte": base.to(torch.uint8),
        "long": base.long(),
        "bool": base > 3,
        "complex": torch.complex(base, -base),
        "scalar": torch.tensor(3.5),
        "bfloat16 scalar": torch.tensor(3.5, dtype=torch.bfloat16),
        "empty": torch.empty(0, 3),
        "transposed": base.t(),
        "strided": base[::2, 1::3],
        "slice": base[1:],
        "large": torch.arange(float(LARGE)),
        "large transposed": torch.arange(float(LARGE)).view(2, -1).t(),
    }


@pytest.mark.parametrize("kind", tensors())
def test_tensors_come_back_as_they_were(ray_session, actor, compiled, kind):
    ray = ray_session
    sent = tensors()[kind]
    graph = compiled(actor.remote().echo.bind)
    for _ in range(2):
        for back in (ray.get(graph.execute(sent)), ray.get(graph.execute([{"a": sent}]))[0]["a"]):
            assert type(back) is torch.Tensor
            assert (back.dtype, back.shape, back.device) == (sent.dtype, sent.shape, sent.device)
            assert torch.equal(back, sent)


@pytest.mark.only("mray", "local")
@pytest.mark.parametrize("name", ["uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2"])
def test_newer_dtypes_come_back_too(ray_session, actor, compiled, name):
    """Real Ray ends the graph: torch's own pickle, which it uses, knows these not."""
    ray = ray_session
    sent = torch.arange(64, dtype=torch.uint8).view(getattr(torch, name))
    back = ray.get(compiled(actor.remote().echo.bind).execute([sent]))[0]
    assert back.dtype == sent.dtype
    assert torch.equal(back.view(torch.uint8), sent.view(torch.uint8))


def test_parameters_and_modules_come_back_as_such(ray_session, actor, compiled):
    ray = ray_session
    graph = compiled(actor.remote().echo.bind)
    linear = torch.nn.Linear(3, 2)
    back = ray.get(graph.execute(linear))
    assert torch.equal(back.weight, linear.weight)
    assert isinstance(back.weight, torch.nn.Parameter)
    assert back.weight.requires_grad


@pytest.mark.differs("Ray sends such tensors without the history that gives their gradients a meaning; mray refuses and says what to do")
def test_tensors_that_require_grad(ray_session, actor, compiled, engine):
    ray = ray_session
    graph = compiled(actor.remote().echo.bind)
    leaf = torch.ones(3, requires_grad=True)
    if engine == "ray":
        for sent in (leaf, leaf * 2):
            back = ray.get(graph.execute(sent))
            assert back.requires_grad
            assert back.grad_fn is None
        return
    for sent in (leaf, leaf * 2, [leaf]):
        with pytest.raises(RuntimeError, match=r"requires grad .* Send tensor.detach\(\)"):
            graph.execute(sent)
    assert torch.equal(ray.get(graph.execute(leaf.detach())), torch.ones(3))


@pytest.mark.only("mray", "local")
def test_a_method_that_returns_a_tensor_with_grad_fails_and_the_graph_goes_on(ray_session, actor, compiled):
    ray = ray_session
    graph = compiled(actor.remote().make.bind)
    for _ in range(2):
        with pytest.raises(ray.exceptions.RayTaskError, match=r"Send tensor.detach\(\)"):
            ray.get(graph.execute(True))
        assert torch.equal(ray.get(graph.execute(False)), torch.full((3,), 2.0))


# ---------------------------------------------------------------------------------------- to each his own
@pytest.mark.parametrize("size", [4, 1000, LARGE])
def test_a_tensor_may_be_written_to_and_the_sender_does_not_see_it(ray_session, actor, compiled, size):
    ray = ray_session
    graph = compiled(actor.remote().increment.bind)
    sent = torch.ones(size)
    for _ in range(5):
        assert ray.get(graph.execute(sent)) == 2 * size
        assert ray.get(graph.execute(sent)) == 2 * size
    assert sent.sum() == size


@pytest.mark.parametrize("size", [4, 1000, LARGE])
def test_what_one_actor_writes_another_does_not_see(ray_session, actor, compiled, size):
    ray = ray_session
    one, other, keeper = (actor.remote() for _ in range(3))
    graph = compiled(
        lambda value: ray.dag.MultiOutputNode([one.increment.bind(value), other.increment.bind(value), keeper.keep.bind(value)])
    )
    for number in range(4):
        assert ray.get(graph.execute(torch.full((size,), float(number)))) == [(number + 1) * size] * 2 + [number + 1]
    graph.teardown()
    assert ray.get(keeper.sums.remote()) == [number * size for number in range(4)]


@pytest.mark.only("mray", "local")
@pytest.mark.parametrize("size", [4, LARGE])
def test_a_result_that_was_passed_on_may_be_written_to_by_all(ray_session, actor, compiled, size):
    """On Ray, a graph whose results are kept cannot be torn down."""
    ray = ray_session
    first, second = actor.remote(), actor.remote()
    graph = compiled(lambda value: second.increment_and_return.bind(first.echo.bind(value)))
    results = [ray.get(graph.execute(torch.full((size,), float(number)))) for number in range(12)]
    results[0] += 100
    assert [float(result[-1]) for result in results] == [101.0, *[float(number + 1) for number in range(1, 12)]]


@pytest.mark.only("mray", "local")
def test_results_that_are_kept_never_change_and_block_nothing(ray_session, actor, compiled):
    ray = ray_session
    graph = compiled(actor.remote().echo.bind)
    results = [ray.get(graph.execute(torch.full((LARGE,), float(number)))) for number in range(50)]
    for number, result in enumerate(results):
        assert bool((result == number).all())


# ----------------------------------------------------------------------------------------------- copies
def counters(graph) -> tuple[int, int]:
    """Inputs that the driver has passed on, and the memory that it has for those it copied."""
    statistics = graph._input.writer.statistics()
    return statistics["passed_on"], statistics["bytes"]


@pytest.mark.processes("objects lie on the heap, where no mapping leads")
@pytest.mark.only("mray")
@pytest.mark.parametrize("make", [lambda: np.arange(LARGE), lambda: torch.arange(LARGE)], ids=["array", "tensor"])
def test_objects_are_inputs_without_a_copy(ray_session, actor, compiled, make):
    ray = ray_session
    graph = compiled(actor.remote().describe.bind if isinstance(make(), torch.Tensor) else actor.remote().slice.bind)
    value = ray.get(ray.put(make()))
    for number in range(3):
        ray.get(graph.execute(value))
        assert counters(graph) == (number + 1, 0)
    part = value[1000:].reshape(2, -1)
    ray.get(graph.execute(part))
    assert counters(graph) == (4, 0)


@pytest.mark.only("mray", "local")
@pytest.mark.parametrize("make", [lambda: np.arange(LARGE), lambda: torch.arange(LARGE)], ids=["array", "tensor"])
def test_results_of_a_graph_are_inputs_of_another_without_a_copy(ray_session, actor, compiled, make):
    ray = ray_session
    first, second = compiled(actor.remote().echo.bind), compiled(actor.remote().slice.bind)
    for number in range(5):
        result = ray.get(first.execute(make() + number))
        back = ray.get(second.execute(result))
        del result
        assert bool((back == (make() + number)[100:]).all())
        del back
    assert counters(second) == (5, 0)
    assert all(channel["given_away"] == 0 for channel in first.statistics()["channels"].values())


@pytest.mark.parametrize("make", [lambda: np.arange(LARGE), lambda: torch.arange(LARGE)], ids=["array", "tensor"])
def test_a_value_goes_through_many_hands(ray_session, actor, compiled, make):
    ray = ray_session
    actors = [actor.remote() for _ in range(4)]

    def build(value):
        for each in actors[:3]:
            value = each.slice.bind(value)
        return actors[3].wrap.bind(value)

    graph = compiled(build)
    for number in range(6):
        back = ray.get(graph.execute(make() + number))
        assert back["more"] == [1, "text"]
        assert bool((back["value"] == (make() + number)[300:]).all())
        del back


@pytest.mark.parametrize("make", [lambda: np.arange(LARGE), lambda: torch.arange(LARGE)], ids=["array", "tensor"])
def test_an_actor_returns_what_it_got_from_the_object_store(ray_session, actor, compiled, make):
    ray = ray_session
    graph = compiled(actor.remote().load.bind)
    ref = ray.put(make())
    for _ in range(4):
        assert bool((ray.get(graph.execute([ref])) == make()).all())
    back = ray.get(graph.execute([ref]))
    del ref
    assert bool((back == make()).all())
    del back


def test_sizes_may_change_with_every_execution(ray_session, actor, compiled):
    ray = ray_session
    graph = compiled(actor.remote().echo.bind)
    for exponent in (10, 20, 5, 22, 12, 22, 21, 0, 19):
        size = 1 << exponent
        back = ray.get(graph.execute(torch.full((size,), exponent, dtype=torch.uint8)))
        assert back.shape == (size,)
        assert bool((back == exponent).all())


@pytest.mark.only("mray", "local")
def test_a_result_outlives_the_actor_and_the_graph(ray_session, actor, compiled):
    ray = ray_session
    member = actor.remote()
    graph = compiled(member.echo.bind)
    result = ray.get(graph.execute(torch.arange(LARGE)))
    graph.teardown(kill_actors=True)
    result += 1
    assert torch.equal(result, torch.arange(LARGE) + 1)


def test_a_tensor_of_the_object_store_may_be_written_to_and_each_get_brings_its_own(ray_session):
    ray = ray_session
    ref = ray.put([torch.zeros(LARGE)])
    first = ray.get(ref)[0]
    first += 1
    second = ray.get(ref)[0]
    assert not second.any()
    second += 2
    assert bool((first == 1).all())
    assert not ray.get(ref)[0].any()


PROGRAM = """
import sys, warnings
import {engine} as ray
from {engine}.dag import InputNode

warnings.simplefilter("error")
ray.init(num_cpus=1, logging_level="ERROR")

@ray.remote
class Actor:
    def modules(self, value):
        return sorted({{"numpy", "torch"}} & set(sys.modules))

with InputNode() as value_in:
    graph = Actor.remote().modules.bind(value_in).experimental_compile()
print(ray.get(graph.execute(5)), sorted({{"numpy", "torch"}} & set(sys.modules)))
import numpy
print(ray.get(graph.execute(numpy.arange(300_000))))
import torch
print(ray.get(graph.execute([numpy.arange(3)])))
print(ray.get(graph.execute(torch.arange(300_000))), ray.get(graph.execute([torch.arange(3)])))
graph.teardown()
ray.shutdown()
"""


@pytest.mark.processes("what one actor imports is imported for all")
@pytest.mark.only("mray")
def test_who_gets_no_tensor_imports_no_torch_and_who_does_hears_no_warning(engine, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM.format(engine=engine)))
    done = subprocess.run(
        [sys.executable, "-W", "error", str(program)], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
    )
    assert done.stdout.splitlines() == ["[] []", "['numpy']", "['numpy']", "['numpy', 'torch'] ['numpy', 'torch']"]
    assert "arning" not in done.stderr
