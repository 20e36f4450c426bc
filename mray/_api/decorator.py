"""``@remote``: from the user's function or class to what runs elsewhere."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, overload

from mray._api.actor import ActorClass
from mray._api.described import option_signature
from mray._api.remote_function import RemoteFunction
from mray._common.options import ACTOR_OPTIONS, TASK_OPTIONS

if TYPE_CHECKING:
    from typing import TypeVar

    from typing_extensions import Unpack  # type checkers have it, programs need not

    from mray._api import typed

    F = TypeVar("F", bound=Callable[..., Any])
    T = TypeVar("T")


@overload
def remote(target: type[T], /) -> ActorClass[T]: ...  # type: ignore[overload-overlap]


@overload
def remote(target: F, /) -> typed.RemoteFunction[F]: ...


@overload
def remote(*, num_returns: typed.Several, **options: Unpack[typed.RemoteOptionsApart]) -> typed.SeveralDecorator: ...  # type: ignore[overload-overlap]


@overload
def remote(**options: Unpack[typed.RemoteOptions]) -> typed.RemoteDecorator: ...


def remote(*args: Any, **options: Any) -> Any:
    """Make a function a task, or a class an actor class: ``@remote`` or ``@remote(num_cpus=2, ...)``.

    TypeError for what is neither; TypeError or ValueError for options that it cannot have. ``f.options(...)`` and ``A.options(...)`` take
    the same for one call or actor, but for what says otherwise here. An option that is None is as if it were not given.

    Options of tasks and actors:

    ``num_cpus=0.5``
        float, in CPUs; default None: 1 for a task; an actor needs 1 to be placed and holds none. Amounts that are held while it runs.
    ``num_gpus=1``
        float, in GPUs; default None: 0. Parts of one, or whole ones, which alone it sees.
    ``memory=2 * 1024**3``
        float, in bytes; default None. Main memory that is set aside; nothing enforces it.
    ``resources={"disk": 1}``
        dict of names and floats; default None. Amounts of what `init` was given as resources.
    ``accelerator_type="H100"``
        str; default None. A model of GPU that the machine must have.
    ``name="trainer"``
        str; default None. Of a task: the name in listings. Of an actor: `get_actor` finds it by this.
    ``runtime_env={"env_vars": {"OMP_NUM_THREADS": "4"}}``
        dict; default None: the one of `init`. The environment of its process.
    ``scheduling_strategy="SPREAD"``
        str, or a strategy of `mray.util.scheduling_strategies`; default None: ``"DEFAULT"``. A placement group, mostly.
    ``placement_group=None``
        PlacementGroup or str; default "default": that of the caller, where it captures children. Older than the strategy.
    ``placement_group_bundle_index=0``
        int, an index; default -1: any bundle of the group.
    ``placement_group_capture_child_tasks=True``
        bool; default None: as the caller's. Whether tasks that it submits run in the group, too.
    ``label_selector={"ray.io/accelerator-type": "H100"}``
        dict of str; default None. Labels that the node must have.
    ``fallback_strategy=[{"label_selector": {"tier": "b"}}]``
        list of dicts; default None. Selectors to try when no node has the labels.
    ``cpu_affinity=[0, 1]``
        list of CPU numbers, or str; default None: any CPU. CPUs that its process is pinned to. mray's own.
    ``enable_task_events=False``
        bool; default True. Taken for Ray's sake: mray lists what runs anyway.
    ``object_store_memory=100 * 1024**2``
        int, in bytes; default None. Of actors, and deprecated: it reserves nothing.
    ``_labels={"team": "a"}``
        dict of str; default None. Labels of its own.

    Options of tasks:

    ``num_returns=2``
        int, in values, or str; default None: 1, of a generator ``"streaming"``. The number of refs that a call returns.
    ``max_retries=0``
        int, in times; default None: 3. How often it runs again when its process dies; -1 without end.
    ``retry_exceptions=[ConnectionError]``
        bool, or list or tuple of exceptions; default False. Errors of the function after which it runs again, too.
    ``retry_delay_s=[1, 2, 4]``
        float, in seconds, or list or tuple of them; default None: a second, or the setting's. The pause before each retry, the last
        before all further ones. mray's own.
    ``timeout_s=30``
        float, in seconds; default None: no limit. A task that runs for longer is interrupted, and fails with TimeoutError, after which
        `retry_exceptions` may let it run again. mray's own.
    ``max_calls=10``
        int, in calls; default None: no limit, with GPUs 1. Calls after which its process is replaced. Not in ``f.options``.
    ``_generator_backpressure_num_objects=8``
        int, in objects; default None: no limit. A generator waits while it is this many items ahead of its reader.
    ``_num_objects_per_yield=2``
        int, in objects; default 1. The number of values that a generator yields together. Not in ``f.options``.

    Options of actors:

    ``max_concurrency=4``
        int, in calls; default None: 1, of an async actor 1000. Calls that run at the same time.
    ``concurrency_groups={"io": 2}``
        dict of names and calls, or list; default None. Limits for methods that `method` puts into groups. Not in ``A.options``.
    ``max_restarts=3``
        int, in times; default 0. How often it is started again after its process died; -1 without end.
    ``max_task_retries=1``
        int, in times; default 0. How often a call that the death interrupted runs again; -1 without end.
    ``max_pending_calls=100``
        int, in calls; default -1: no limit. A call above these raises PendingCallsLimitExceeded.
    ``lifetime="detached"``
        str; default None: it ends with its last handle. ``"detached"``: with the session, or by `kill`.
    ``namespace="tests"``
        str; default None: that of `init`. Names are unique in a namespace.
    ``get_if_exists=True``
        bool; default False. Where an actor of this `name` lives, its handle is returned.
    ``enable_tensor_transport=True``
        bool; default None: whether a method was declared with a `tensor_transport`. Tensors of its results may stay with it.
    ``allow_out_of_order_execution=True``
        bool; default None: whether it is an async actor. A call whose arguments are there need not wait for those before it.
    ``_actor_generator_backpressure_num_objects=64``
        int, in objects; default None: no limit. As for one generator, for all of the actor together.
    """
    if len(args) == 1 and not options and callable(args[0]):
        return make_remote(args[0], {})
    if args or not options:
        names = list(dict.fromkeys((*TASK_OPTIONS, *ACTOR_OPTIONS)))
        raise AssertionError(
            "The @ray.remote decorator must be applied either with no arguments and no parentheses, for example '@ray.remote', or it must "
            f"be applied using some of the arguments in the list {names}, for example "
            "'@ray.remote(num_returns=2, resources={\"CustomResource\": 1})'."
        )
    return lambda target: make_remote(target, options)


remote.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [
        inspect.Parameter("target", inspect.Parameter.POSITIONAL_ONLY, default=None),
        *option_signature({**TASK_OPTIONS, **ACTOR_OPTIONS}, bound=False).parameters.values(),
    ]
)


def make_remote(target: Any, options: Mapping[str, Any]) -> RemoteFunction | ActorClass[Any]:
    """The remote function or actor class for `target`. TypeError for other targets."""
    if inspect.isclass(target):
        return ActorClass(target, options)
    if inspect.isfunction(target) or type(target).__name__ == "cython_function_or_method":
        return RemoteFunction(target, options)
    raise TypeError("The @ray.remote decorator must be applied to either a function or a class.")
