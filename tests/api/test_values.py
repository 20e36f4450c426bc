"""Values of all kinds arrive as they were sent, by every way: equal to cloudpickle's copies.

The kinds are those of `tests.values.kinds`, some 800 where all packages are installed, each a message of its own. Each test is a way and a
family of kinds, and says all that arrived wrong. Different on purpose, and none of a description's words: arrays are read-only, tensors
with gaps arrive dense, code keeps the name of its file, and Arrow's columns may come in other chunks. An edge of a graph refuses tensors
that require grad.
"""

from __future__ import annotations

import contextlib
import importlib
import pickle
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.values import peers
from tests.values.description import Words, describe, difference
from tests.values.kinds import FAMILIES, make, wanted

#: One process pickles as several do, and has the other tests of values. On Ray 2.60 a bytearray comes as bytes, what parts of a list or
#: closure share comes as two, `print` as another function, and an Arrow table with two columns of one name not at all.
pytestmark = pytest.mark.only("mray")
PRELOAD = ["tests.values.kinds"]
SESSION = {"num_cpus": 2}
#: Of tensors that have a history.
REFUSED_BY_GRAPHS = "torch gradients"
#: Containers that hold themselves: a step looks through them for variables.
REFUSED_AS_VARIABLES = {"list in itself", "dict in itself", "tuple in its list"}


class Failed:
    """Came instead of a value's words."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


Result = Any


def attempt(call: Callable[[], Any]) -> Result:
    """The words, or how it failed."""
    try:
        return call()
    except Exception as error:
        return Failed(error)


def kinds_of(family: str) -> list[tuple[str, str]]:
    return [(family, name) for name in FAMILIES[family]]


def wrong(kind: tuple[str, str], found: Result, messages: int) -> str:
    """The fault of a result, which has travelled in so many messages; empty if it has none."""
    expected = wanted(*kind, messages)
    if isinstance(found, Failed):
        error = found.error
        return "" if expected.error else f"{type(error).__name__}: {str(error).strip().splitlines()[-1]:.200}"
    if found in expected.words:
        return ""
    return difference(expected.words[0], found) if expected.words else "arrived, and cloudpickle refuses it"


class Ways:
    """The ways of sending: for all kinds of a family, what arrived of each."""

    def __init__(self, ray: Any) -> None:
        self.ray = ray
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Ways:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _peer(self, *values: Any) -> Any:
        peer = self.ray.remote(num_cpus=0)(peers.Peer).remote(*values)
        self._stack.callback(self.ray.kill, peer)
        return peer

    def _task(self, function: Any, **options: Any) -> Any:
        remote = self.ray.remote(function)
        return remote.options(max_retries=0, **options)

    def _looked_at(self, kinds: Any, send: Callable[[Any], Any]) -> list[Result]:
        """Of what is sent at once: refs of the words."""
        refs = [attempt(lambda kind=kind: send(make(*kind))) for kind in kinds]
        return [ref if isinstance(ref, Failed) else attempt(lambda ref=ref: self.ray.get(ref)) for ref in refs]

    def _made(self, kinds: Any, ask: Callable[[Any], Any], part: Callable[[Any], Any] = lambda value: value) -> list[Result]:
        """Of what is made elsewhere."""
        refs = [ask(kind) for kind in kinds]
        return [attempt(lambda ref=ref: describe(part(self.ray.get(ref)))) for ref in refs]

    # ------------------------------------------------------------------------------------ the object store
    def put(self, kinds: Any) -> list[Result]:
        return [attempt(lambda kind=kind: describe(self.ray.get(self.ray.put(make(*kind))))) for kind in kinds]

    def put_beside_much(self, kinds: Any) -> list[Result]:
        ballast = peers.ballast()
        return [attempt(lambda kind=kind: describe(self.ray.get(self.ray.put([make(*kind), ballast]))[0])) for kind in kinds]

    def put_by_a_task(self, kinds: Any) -> list[Result]:
        ray = self.ray

        def put(family: str, name: str) -> Any:
            return [ray.put(make(family, name))]

        return self._made(kinds, lambda kind: self._task(put).remote(*kind), lambda refs: ray.get(refs[0]))

    # ------------------------------------------------------------------------------------------- of tasks
    def argument(self, kinds: Any) -> list[Result]:
        return self._looked_at(kinds, self._task(peers.look).remote)

    def keyword(self, kinds: Any) -> list[Result]:
        return self._looked_at(kinds, lambda value: self._task(peers.look).remote(value=value))

    def nested_argument(self, kinds: Any) -> list[Result]:
        return self._looked_at(kinds, lambda value: self._task(peers.look_at_item).remote({"items": [value]}))

    def argument_beside_much(self, kinds: Any) -> list[Result]:
        ballast = peers.ballast()
        return self._looked_at(kinds, lambda value: self._task(peers.look_at_item).remote({"items": [value, ballast]}))

    def argument_by_ref(self, kinds: Any) -> list[Result]:
        return self._looked_at(kinds, lambda value: self._task(peers.look).remote(self.ray.put(value)))

    def result(self, kinds: Any) -> list[Result]:
        return self._made(kinds, lambda kind: self._task(make).remote(*kind))

    def one_of_several_results(self, kinds: Any) -> list[Result]:
        return self._made(kinds, lambda kind: self._task(peers.make_beside, num_returns=2).remote(*kind)[0])

    def result_beside_much(self, kinds: Any) -> list[Result]:
        return self._made(kinds, lambda kind: self._task(peers.make_beside).remote(*kind), lambda pair: pair[0])

    def result_passed_on(self, kinds: Any) -> list[Result]:
        refs = [self._task(peers.look).remote(self._task(make).remote(*kind)) for kind in kinds]
        return [attempt(lambda ref=ref: self.ray.get(ref)) for ref in refs]

    def error(self, kinds: Any) -> list[Result]:
        def words(ref: Any) -> Words:
            try:
                self.ray.get(ref)
            except self.ray.exceptions.RayTaskError as error:
                if type(error.cause) is not peers.Carrier:  # it could not be sent
                    raise
                return describe(error.cause.args[0])

        refs = [self._task(peers.fail_with).remote(*kind) for kind in kinds]
        return [attempt(lambda ref=ref: words(ref)) for ref in refs]

    def generator(self, kinds: Any) -> list[Result]:
        sendable = [kind for kind in kinds if not wanted(*kind).error]
        stream = self._task(peers.make_all, num_returns="streaming").remote(kinds[0][0], [name for _, name in sendable])
        found = {kind: attempt(lambda: describe(self.ray.get(next(stream)))) for kind in sendable}
        return [found.get(kind, Failed(ValueError())) for kind in kinds]

    def captured(self, kinds: Any) -> list[Result]:
        def call(value: Any) -> Any:
            return self._task(lambda: describe(value)).remote()

        return self._looked_at(kinds, call)

    def default(self, kinds: Any) -> list[Result]:
        def call(value: Any) -> Any:
            def look(value: Any = value) -> Words:
                return describe(value)

            return self._task(look).remote()

        return self._looked_at(kinds, call)

    # ------------------------------------------------------------------------------------------ of actors
    def constructor(self, kinds: Any) -> list[Result]:
        sendable = [kind for kind in kinds if not wanted(*kind).error]
        got = attempt(lambda: self.ray.get(self._peer(*[make(*kind) for kind in sendable]).got.remote()))
        found = {} if isinstance(got, Failed) else dict(zip(sendable, got, strict=True))
        return [found.get(kind, got if isinstance(got, Failed) else Failed(ValueError())) for kind in kinds]

    def argument_of_a_method(self, kinds: Any) -> list[Result]:
        return self._looked_at(kinds, self._peer().look.remote)

    def result_of_a_method(self, kinds: Any) -> list[Result]:
        return self._made(kinds, self._peer().make.remote)

    def result_of_a_coroutine(self, kinds: Any) -> list[Result]:
        return self._made(kinds, self._peer().make_later.remote)

    def queue(self, kinds: Any) -> list[Result]:
        module = importlib.import_module(f"{self.ray.__name__}.util.queue")
        queue = module.Queue(actor_options={"num_cpus": 0})
        self._stack.callback(queue.shutdown)

        def through(kind: Any) -> Words:
            queue.put(make(*kind))
            return describe(queue.get())

        return [attempt(lambda kind=kind: through(kind)) for kind in kinds]

    # ------------------------------------------------------------------------------------------ of graphs
    def _compiled(self, build: Callable[[Any], Any]) -> Any:
        with self.ray.dag.InputNode() as given:
            graph = build(given).experimental_compile()
        self._stack.callback(graph.teardown)
        return graph

    def _executed(self, graph: Any, given: Any, words: Callable[[Any], Words]) -> list[Result]:
        return [attempt(lambda each=each: words(self.ray.get(graph.execute(each())))) for each in given]

    def input_of_a_graph(self, kinds: Any) -> list[Result]:
        graph = self._compiled(self._peer().look.bind)
        return self._executed(graph, [lambda kind=kind: make(*kind) for kind in kinds], lambda words: words)

    def input_beside_much(self, kinds: Any) -> list[Result]:
        graph, ballast = self._compiled(self._peer().look_at_item.bind), peers.ballast()
        return self._executed(graph, [lambda kind=kind: {"items": [make(*kind), ballast]} for kind in kinds], lambda words: words)

    def output_of_a_graph(self, kinds: Any) -> list[Result]:
        graph = self._compiled(self._peer().make.bind)
        return self._executed(graph, [lambda kind=kind: kind for kind in kinds], describe)

    def output_beside_much(self, kinds: Any) -> list[Result]:
        graph = self._compiled(self._peer().make_beside.bind)
        return self._executed(graph, [lambda kind=kind: kind for kind in kinds], lambda pair: describe(pair[0]))

    def edge_between_actors(self, kinds: Any) -> list[Result]:
        graph = self._compiled(lambda given: self._peer().look.bind(self._peer().make.bind(given)))
        return self._executed(graph, [lambda kind=kind: kind for kind in kinds], lambda words: words)


def proxy(ways: Ways, kinds: Any) -> list[Result]:
    """As a variable of another interpreter, looked at there and here."""
    from mray.proxy import RemoteInterpreterFactory

    interpreter = RemoteInterpreterFactory(ways.ray).create(num_cpus=0)
    look = interpreter.put(describe)

    def through(kind: Any) -> Words:
        variable = interpreter.put(make(*kind))
        there, here = look(variable).fetch(), describe(variable.fetch())
        return here if there == here else there

    return [attempt(lambda kind=kind: through(kind)) for kind in kinds]


WAYS = [name for name in vars(Ways) if not name.startswith("_") and name != "ray"]


@pytest.fixture
def ways(ray_session: Any) -> Iterator[Ways]:
    with warnings.catch_warnings(), Ways(ray_session) as made:
        warnings.simplefilter("ignore")  # of torch, about some of its layouts
        yield made


def check(kinds: list[tuple[str, str]], found: list[Result], messages: int = 1) -> None:
    assert len(found) == len(kinds)
    faults = {kind[1]: fault for kind, result in zip(kinds, found, strict=True) if (fault := wrong(kind, result, messages))}
    assert not faults, "\n".join([f"{len(faults)} of {len(kinds)}", *[f"{name}: {fault}" for name, fault in faults.items()]])


def is_refused(way: str, family: str) -> bool:
    return family == REFUSED_BY_GRAPHS and ("graph" in way or way in ("input_beside_much", "output_beside_much", "edge_between_actors"))


@pytest.mark.parametrize(("way", "family"), [(way, family) for way in WAYS for family in FAMILIES if not is_refused(way, family)])
def test_values_arrive_as_they_were(ways, way, family):
    kinds = kinds_of(family)
    check(kinds, getattr(ways, way)(kinds), messages=2 if way == "queue" else 1)


@pytest.mark.only("mray")
@pytest.mark.parametrize("family", FAMILIES)
def test_values_arrive_as_they_were_as_variables_of_another_interpreter(ways, family):
    kinds = [kind for kind in kinds_of(family) if kind[1] not in REFUSED_AS_VARIABLES]
    check(kinds, proxy(ways, kinds))


@pytest.mark.processes("values of one process are its own memory, and no other has to find them")
def test_values_arrive_as_they_were_from_disk(fresh, init):
    init(num_cpus=1, object_store_memory=80 << 20)
    kinds = [kind for family in FAMILIES for kind in kinds_of(family)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sent = [attempt(lambda kind=kind: fresh.put([make(*kind), peers.ballast()])) for kind in kinds]
        found = [ref if isinstance(ref, Failed) else attempt(lambda ref=ref: describe(fresh.get(ref)[0])) for ref in sent]
        sent.clear()  # a failed test would keep their files open
        check(kinds, found)


@pytest.mark.only("mray")
def test_arrays_made_in_shared_memory_keep_their_dtypes(ray_session):
    from mray.util import shared

    names = [name for name in FAMILIES["numpy dtypes"] if name.startswith("array of ")]
    made = {name: shared.array(np.resize(make("numpy dtypes", name), 30_000)) for name in names}
    wanted_dtypes = {name: pickle.loads(pickle.dumps(array[:1])).dtype for name, array in made.items()}
    for send in (lambda array: ray_session.get(ray_session.put(array)), lambda array: ray_session.get(ray_session.put([array[5:]]))[0]):
        for name, array in made.items():
            arrived = send(array)
            assert describe(arrived.dtype) in (describe(wanted_dtypes[name]), describe(array.dtype)), name
            assert arrived.tobytes() == array[-len(arrived) :].tobytes() or arrived.dtype.hasobject
