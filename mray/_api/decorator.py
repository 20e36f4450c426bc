"""``@remote``: from the user's function or class to what runs elsewhere."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, overload

from mray._api.actor import ActorClass
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
def remote(**options: Unpack[typed.RemoteOptions]) -> typed.RemoteDecorator: ...


def remote(*args: Any, **options: Any) -> Any:
    """Make a function a task, or a class an actor class: ``@remote`` or ``@remote(num_cpus=2, ...)``.

    TypeError for what is neither; TypeError or ValueError for options that it cannot have.
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


def make_remote(target: Any, options: Mapping[str, Any]) -> RemoteFunction | ActorClass[Any]:
    """`remote` without its ways of being written."""
    if inspect.isclass(target):
        return ActorClass(target, options)
    if inspect.isfunction(target) or type(target).__name__ == "cython_function_or_method":
        return RemoteFunction(target, options)
    raise TypeError("The @ray.remote decorator must be applied to either a function or a class.")
