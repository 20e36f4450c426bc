"""Values that options and arguments can hardly have: there is a clear error at once, or the call works, and the session goes on.

The first half are Ray's answers. The second tries everything with everything: there Ray ends processes, or never answers.
"""

from __future__ import annotations

import math
import os
from typing import Any

import pytest

np = pytest.importorskip("numpy")


class Text(str):
    """A str that is none of the builtin class, as those of enumerations."""

    __slots__ = ()


class Whole(int):
    """An int of a class of its own."""


HUGE = [10**30, 1 << 63]
ODD = [
    *[None, 0, -1, 0.5, 1, 2, *HUGE, math.nan, math.inf, -math.inf, 1e-9, True, False, "", "x", "1", b"x", (), [], {}, ["x"], object()],
    *[{"custom": value} for value in (0, -1, 0.5, None, "1", math.nan, *HUGE, np.int64(1), np.float64(0.5), True, object())],
    *[
        {1: 1},
        {Text("custom"): 1},
        {Text("label"): Text("x")},
        {"env_vars": {"A": np.str_("b")}},
        {Text("env_vars"): {Text("A"): Text("b")}},
    ],
    *[np.int64(1), np.float64(0.5), np.bool_(True), np.str_("x"), np.zeros(2), Text("x"), Whole(1), Whole(0)],
]
LOCAL = os.environ.get("MRAY_TEST_ENGINE") == "local"
#: Of these, a few that are taken for something: what is refused comes to no process.
TAKEN = [
    True,
    2,
    np.float64(0.5),
    np.str_("x"),
    Text("x"),
    Whole(1),
    {"custom": np.float64(0.5)},
    {Text("custom"): 1},
    {Text("A"): Text("b")},
]


class Actor:
    def method(self) -> int:
        return 1


def answer() -> int:
    return 1


# ------------------------------------------------------------------------------------------------ as Ray
@pytest.mark.parametrize(
    "options",
    [
        *[{"num_returns": value} for value in HUGE],
        *[{"max_retries": value} for value in HUGE],
        *[{"num_cpus": math.inf}, {"memory": math.inf}],
    ],
)
def test_numbers_of_tasks_are_of_64_bits(ray_session, options):
    with pytest.raises(OverflowError):
        ray_session.remote(**options)(answer).remote()


@pytest.mark.parametrize("option", ["max_restarts", "max_task_retries", "max_concurrency", "max_pending_calls"])
def test_numbers_of_actors_are_of_64_bits(ray_session, option):
    for value in HUGE:
        with pytest.raises(OverflowError):
            ray_session.remote(Actor).options(**{option: value}).remote()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"num_cpus": math.nan}, ValueError),
        ({"num_cpus": np.int64(1)}, TypeError),
        ({"max_retries": np.int64(1)}, TypeError),
        ({"max_retries": 0.5}, TypeError),
        ({"num_returns": np.float64(0.5)}, TypeError),
        ({"placement_group_bundle_index": 1 << 63}, ValueError),
        ({"resources": {"custom": math.nan}}, ValueError),
        ({"resources": {"custom": -1}}, ValueError),
        ({"runtime_env": {1: 1}}, TypeError),
        ({"runtime_env": {"env_vars": {"A": 1}}}, TypeError),
        ({"label_selector": {1: 1}}, TypeError),
        ({"fallback_strategy": [1]}, ValueError),
        ({"scheduling_strategy": "x"}, ValueError),
        ({"_labels": {1: "x"}}, ValueError),
        ({"_labels": {"x": 1}}, ValueError),
    ],
)
@pytest.mark.parametrize("thing", [answer, Actor])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_options_that_make_no_sense_are_refused_at_once(ray_session, thing, options, error):
    if thing is Actor and options.keys() & {"max_retries", "num_returns"}:
        options = {"max_restarts": next(iter(options.values()))}
    with pytest.raises(error):
        ray_session.remote(**options)(thing).remote()


def test_numbers_and_texts_may_be_of_classes_of_their_own(ray_session):
    options = {"name": Text("odd"), "num_cpus": np.float64(0.5), "max_retries": Whole(1), "resources": {Text("custom"): np.float64(1)}}
    assert ray_session.get(ray_session.remote(**options, num_returns=True)(answer).remote()) == 1
    options = {"num_cpus": 0, "max_restarts": True, "max_concurrency": Whole(2), "name": np.str_("odd")}
    actor = ray_session.remote(**options, concurrency_groups={Text("io"): np.int64(1)})(Actor).remote()
    assert ray_session.get(actor.method.options(num_returns=np.int64(1), max_task_retries=True, concurrency_group=Text("io")).remote()) == 1
    ray_session.kill(actor)


@pytest.mark.parametrize(
    ("most", "error"), [*((most, OverflowError) for most in (-1, 1 << 32, 10**30)), *((most, TypeError) for most in (None, "x"))]
)
def test_the_number_of_calls_of_a_concurrency_group_is_a_whole_one_of_32_bits(ray_session, most, error):
    with pytest.raises(error):
        ray_session.remote(concurrency_groups={"io": most})(Actor).remote()


def test_numbers_of_methods_are_of_64_bits(ray_session):
    actor = ray_session.remote(num_cpus=0)(Actor).remote()
    for option in ("num_returns", "max_task_retries", "_generator_backpressure_num_objects"):
        for value in HUGE:
            with pytest.raises(OverflowError):
                actor.method.options(**{option: value}).remote()
    with pytest.raises(TypeError):
        actor.method.options(name=1).remote()
    with pytest.raises(TypeError):
        actor.method.options(concurrency_group=1).remote()
    assert ray_session.get(actor.method.remote()) == 1


@pytest.mark.differs("inf is refused as nan is, and text as other things that are no number")
@pytest.mark.parametrize(
    ("timeout", "error"),
    [(math.nan, ValueError), (math.inf, OverflowError), (1 << 63, OverflowError), ([], TypeError), ({}, TypeError), ("x", ValueError)],
)
def test_a_timeout_is_a_number_of_milliseconds_in_64_bits(ray_session, engine, timeout, error):
    ref = ray_session.put(1)
    if engine != "ray":
        error = TypeError if timeout == "x" else ValueError if timeout == math.inf else error
    for refs in (ref, [ref]):
        with pytest.raises(error):
            ray_session.get(refs, timeout=timeout)
    with pytest.raises(error if isinstance(timeout, (int, float)) else TypeError):
        ray_session.wait([ref], timeout=timeout)
    assert ray_session.get(ref, timeout=np.float64(1)) == 1
    assert ray_session.get(ref, timeout=True) == 1


def test_seconds_to_wait_for_a_placement_group_are_a_number_in_64_bits(ray_session):
    group = ray_session.util.placement_group([{"CPU": 0.5}])
    assert group.wait(30)
    for error, values in ((OverflowError, (math.inf, -math.inf, 1 << 63, 1e30)), (ValueError, (math.nan,)), (TypeError, ("x", None))):
        for seconds in values:
            with pytest.raises(error):
                group.wait(seconds)
    assert group.wait(np.float64(30))
    more_than_there_is = ray_session.util.placement_group([{"CPU": 1000}])
    assert not more_than_there_is.wait(-1)
    for each in (group, more_than_there_is):
        ray_session.util.remove_placement_group(each)


def test_wait_asks_for_whole_numbers_of_refs(ray_session):
    refs = [ray_session.put(1) for _ in range(2)]
    assert len(ray_session.wait(refs, num_returns=1.5)[0]) == 1
    with pytest.raises(ValueError, match="NaN"):
        ray_session.wait(refs, num_returns=math.nan)
    with pytest.raises(ray_session.exceptions.RaySystemError):
        ray_session.wait(refs, num_returns=0.5)


def test_names_of_placement_groups_may_be_of_a_class_of_their_own(ray_session):
    for name in (np.str_("odd"), Text("odd")):
        group = ray_session.util.placement_group([{Text("CPU"): np.float64(0.5)}], name=name)
        assert group.wait(30)
        assert ray_session.util.get_placement_group(name) == group
        ray_session.util.remove_placement_group(group)
    ray_session.cancel(ray_session.put(1), force=False)


# --------------------------------------------------------------------------------- everything with everything
#: Errors that are somebody's answer to a value, before anything has begun.
REFUSED = (TypeError, ValueError, OverflowError, NotImplementedError)
#: Answers of the session, and of code that ran.
ANSWERS = ["TaskUnschedulableError", "ActorUnschedulableError", "ActorAlreadyExistsError", "RuntimeEnvSetupError", "RayTaskError"]
TASK = "num_cpus num_gpus resources memory object_store_memory accelerator_type num_returns max_retries retry_exceptions max_calls name "
TASK += "retry_delay_s timeout_s "
ACTOR = "num_cpus num_gpus resources memory object_store_memory accelerator_type max_restarts max_task_retries max_concurrency name "
ACTOR += "concurrency_groups namespace lifetime max_pending_calls get_if_exists allow_out_of_order_execution enable_tensor_transport "
BOTH = "runtime_env scheduling_strategy placement_group placement_group_bundle_index placement_group_capture_child_tasks label_selector "
BOTH += "fallback_strategy _labels enable_task_events cpu_affinity"
METHOD = "num_returns name concurrency_group max_task_retries retry_exceptions _generator_backpressure_num_objects enable_task_events "
METHOD += "tensor_transport"
INIT = "resources labels namespace _node_name"
if LOCAL:
    INIT += " num_cpus num_gpus object_store_memory log_to_driver runtime_env _memory preload"


@pytest.fixture
def values() -> list[Any]:
    """All of them where a call costs next to nothing."""
    return ODD if LOCAL else TAKEN


def fault(ray: Any, call: Any, *accepted: type[BaseException]) -> str:
    """The text of an end that is neither a value nor an error for the caller; empty for one that is."""
    try:
        made = call()
        ray.get([ref for ref in (made if isinstance(made, list) else [made]) if isinstance(ref, ray.ObjectRef)], timeout=60)
    except (*REFUSED, *accepted) as error:
        return str(error) if "unmarshallable" in str(error) else ""
    except ray.exceptions.RayError as error:
        known = [getattr(ray.exceptions, name) for name in ANSWERS]
        if isinstance(error, ray.exceptions.ActorDiedError):  # as with Ray, where a concurrency group has no calls
            return str(error) if "The handler of" in str(error) else ""
        return "" if isinstance(error, tuple(known)) or "Number of objects to wait for" in str(error) else repr(error)
    except Exception as error:
        return repr(error)
    return ""


@pytest.mark.only("mray", "local")
@pytest.mark.parametrize("option", (TASK + BOTH).split())
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_any_value_of_an_option_of_tasks_is_taken_or_refused(ray_session, option, values):
    for value in values:
        assert not fault(ray_session, lambda value=value: ray_session.remote(**{option: value})(answer).remote()), value
        assert not fault(ray_session, lambda value=value: ray_session.remote(answer).options(**{option: value}).remote()), value
    assert ray_session.get(ray_session.remote(answer).remote()) == 1


@pytest.mark.only("mray", "local")
@pytest.mark.parametrize("option", (ACTOR + BOTH).split())
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_any_value_of_an_option_of_actors_is_taken_or_refused(ray_session, option, values):
    made = []

    def create(value):
        made.append(ray_session.remote(**{"num_cpus": 0, option: value})(Actor).remote())
        return made[-1].method.remote()

    for value in values:
        assert not fault(ray_session, lambda value=value: create(value)), value
        while made:
            ray_session.kill(made.pop())
    assert ray_session.get(ray_session.remote(answer).remote()) == 1


@pytest.mark.only("mray", "local")
def test_any_value_of_an_option_of_methods_is_taken_or_refused(ray_session):
    actor = ray_session.remote(num_cpus=0)(Actor).remote()
    for option in METHOD.split():
        for value in ODD:
            assert not fault(ray_session, lambda option=option, value=value: actor.method.options(**{option: value}).remote()), (
                option,
                value,
            )
    assert ray_session.get(actor.method.remote()) == 1


@pytest.mark.only("mray", "local")
def test_any_argument_of_a_verb_is_taken_or_refused(ray_session):
    ray, ready = ray_session, ray_session.put(1)
    placement_group = ray.util.placement_group

    def group(**arguments):
        made = placement_group(**{"bundles": [{"custom": 0.001}], **arguments})
        made.wait(0.001)
        ray.util.remove_placement_group(made)

    for value in ODD:
        for call in (
            lambda value: ray.wait(value, timeout=0.001),
            lambda value: ray.wait([value], timeout=0.001),
            lambda value: ray.wait([ready], num_returns=value, timeout=0.001),
            lambda value: ray.wait([ready], timeout=value),
            lambda value: ray.wait([ready], fetch_local=value),
            lambda value: ray.get(value, timeout=0.001),
            lambda value: ray.get([value], timeout=0.001),
            lambda value: ray.get(ready, timeout=value),
            lambda value: ray.cancel(value),
            lambda value: ray.cancel(ready, force=value),
            lambda value: ray.kill(value),
            lambda value: ray.get_actor(value),
            lambda value: ray.get_actor("nobody", value),
            lambda value: group(bundles=value),
            lambda value: group(bundles=[value]),
            lambda value: group(bundles=[{"custom": value}]),
            lambda value: group(strategy=value),
            lambda value: group(name=value),
            lambda value: group(lifetime=value),
            lambda value: group(bundle_label_selector=value),
            lambda value: group(bundle_label_selector=[value]),
            lambda value: ray.util.get_placement_group(value),
        ):
            assert not fault(ray, lambda call=call, value=value: call(value), ray.exceptions.GetTimeoutError), value
    assert ray.get(ray.remote(answer).remote()) == 1


@pytest.mark.only("mray", "local")
@pytest.mark.parametrize("option", INIT.split())
def test_any_value_of_an_option_of_init_is_taken_or_refused(init, fresh, option, values):
    def begin(value):
        init(**{"num_cpus": 1, option: value})
        return fresh.remote(num_cpus=0)(answer).remote()

    for value in values:
        assert not fault(fresh, lambda value=value: begin(value), ImportError), value
        fresh.shutdown()


# ------------------------------------------------------------------------------------- what cannot be sent
@pytest.mark.only("mray")
def test_a_call_whose_options_cannot_be_sent_fails_alone(init, fresh):
    """Which those that are checked never are."""
    from mray._api.current import current_backend

    init(num_cpus=1)
    backend = current_backend()
    function, made = fresh.remote(answer), fresh.remote(num_cpus=0)(Actor).remote()
    for _ in range(2):  # while there is no worker yet, and once there is
        options = {**function.default_options, "max_calls": object()}
        before = [function.remote(), made.method.remote()]
        odd = [
            backend.submit_task(function, (), {}, options),
            backend.submit_method(made, made.method._spec, (), {}, 1, {"name": object()}),
        ]
        after = [function.remote(), made.method.remote()]
        for ref in odd:
            with pytest.raises(TypeError, match="could not be called: its options have a value that messages cannot carry"):
                fresh.get(ref, timeout=60)
        assert fresh.get(before + after, timeout=60) == [1] * 4
    many = fresh.remote(num_cpus=1)(answer)
    assert fresh.get([many.remote() for _ in range(3)], timeout=60) == [1] * 3
