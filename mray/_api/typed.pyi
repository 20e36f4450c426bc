"""What type checkers are told of remote functions, actors and their methods. Beside this is the little that exists while a program runs.

A call takes for each positional argument the value or a ref of it, which `ParamSpec` alone cannot say: hence an overload per number of
arguments. The last one takes keywords and any number of arguments, as values; `mray.mypy_plugin` takes refs there as well. The kinds of
results are told apart by what the callable returns, `Unknown` first, which only Any is: nothing of an untyped function is taken for a
generator.
"""

from abc import ABCMeta
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any, Concatenate, Generic, Literal, NoReturn, ParamSpec, Protocol, TypeAlias, TypedDict, TypeVar, final, overload

from typing_extensions import Self  # type checkers have it, programs need not
from typing_extensions import Unpack as Unpack

from mray._api.actor import ActorClass
from mray._api.actor import ActorMethod as _ActorMethod
from mray._api.actor_handle import ActorHandle as _ActorHandle
from mray._api.dag_node import DAGNode
from mray._api.job_config import JobConfig
from mray._api.object_ref import ObjectRef
from mray._api.placement_group import PlacementGroup
from mray._api.ref_generator import ObjectRefGenerator
from mray._api.remote_function import RemoteFunction as _RemoteFunction

_P = ParamSpec("_P")
_R = TypeVar("_R")
_T = TypeVar("_T")
_Y = TypeVar("_Y")
_F_co = TypeVar("_F_co", bound=Callable[..., Any], covariant=True)
_Result_co = TypeVar("_Result_co", covariant=True)
_Given_co = TypeVar("_Given_co", covariant=True)
_F = TypeVar("_F", bound=Callable[..., Any])
_T0 = TypeVar("_T0")
_T1 = TypeVar("_T1")
_T2 = TypeVar("_T2")
_T3 = TypeVar("_T3")
_T4 = TypeVar("_T4")
_T5 = TypeVar("_T5")
_T6 = TypeVar("_T6")
_T7 = TypeVar("_T7")
_T8 = TypeVar("_T8")
_T9 = TypeVar("_T9")

#: Values of ``num_returns`` for which a call gives a list of refs.
Several: TypeAlias = Literal[2, 3, 4, 5, 6, 7, 8, 9, 10]

@final
class Unknown:
    """Nothing but Any passes for this."""

    def _nobody_has_this(self, _: NoReturn) -> NoReturn: ...

class Callee(Generic[_F_co]):
    """What is called remotely: with the parameters of one callable, for refs of its results."""

    @overload
    def remote(self: Callee[Callable[[_T0], Unknown]], a0: _T0 | ObjectRef[_T0], /) -> ObjectRef[Any]: ...
    @overload
    def remote(self: Callee[Callable[[_T0, _T1], Unknown]], a0: _T0 | ObjectRef[_T0], a1: _T1 | ObjectRef[_T1], /) -> ObjectRef[Any]: ...
    @overload
    def remote(
        self: Callee[Callable[[_T0, _T1, _T2], Unknown]], a0: _T0 | ObjectRef[_T0], a1: _T1 | ObjectRef[_T1], a2: _T2 | ObjectRef[_T2], /
    ) -> ObjectRef[Any]: ...
    @overload
    def remote(
        self: Callee[Callable[[_T0, _T1, _T2, _T3], Unknown]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        a2: _T2 | ObjectRef[_T2],
        a3: _T3 | ObjectRef[_T3],
        /,
    ) -> ObjectRef[Any]: ...
    @overload
    def remote(
        self: Callee[Callable[[_T0, _T1, _T2, _T3, _T4], Unknown]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        a2: _T2 | ObjectRef[_T2],
        a3: _T3 | ObjectRef[_T3],
        a4: _T4 | ObjectRef[_T4],
        /,
    ) -> ObjectRef[Any]: ...
    @overload
    def remote(
        self: Callee[Callable[[_T0, _T1, _T2, _T3, _T4, _T5], Unknown]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        a2: _T2 | ObjectRef[_T2],
        a3: _T3 | ObjectRef[_T3],
        a4: _T4 | ObjectRef[_T4],
        a5: _T5 | ObjectRef[_T5],
        /,
    ) -> ObjectRef[Any]: ...
    @overload
    def remote(
        self: Callee[Callable[[_T0, _T1, _T2, _T3, _T4, _T5, _T6], Unknown]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        a2: _T2 | ObjectRef[_T2],
        a3: _T3 | ObjectRef[_T3],
        a4: _T4 | ObjectRef[_T4],
        a5: _T5 | ObjectRef[_T5],
        a6: _T6 | ObjectRef[_T6],
        /,
    ) -> ObjectRef[Any]: ...
    @overload
    def remote(
        self: Callee[Callable[[_T0, _T1, _T2, _T3, _T4, _T5, _T6, _T7], Unknown]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        a2: _T2 | ObjectRef[_T2],
        a3: _T3 | ObjectRef[_T3],
        a4: _T4 | ObjectRef[_T4],
        a5: _T5 | ObjectRef[_T5],
        a6: _T6 | ObjectRef[_T6],
        a7: _T7 | ObjectRef[_T7],
        /,
    ) -> ObjectRef[Any]: ...
    @overload
    def remote(
        self: Callee[Callable[[_T0, _T1, _T2, _T3, _T4, _T5, _T6, _T7, _T8], Unknown]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        a2: _T2 | ObjectRef[_T2],
        a3: _T3 | ObjectRef[_T3],
        a4: _T4 | ObjectRef[_T4],
        a5: _T5 | ObjectRef[_T5],
        a6: _T6 | ObjectRef[_T6],
        a7: _T7 | ObjectRef[_T7],
        a8: _T8 | ObjectRef[_T8],
        /,
    ) -> ObjectRef[Any]: ...
    @overload
    def remote(
        self: Callee[Callable[[_T0, _T1, _T2, _T3, _T4, _T5, _T6, _T7, _T8, _T9], Unknown]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        a2: _T2 | ObjectRef[_T2],
        a3: _T3 | ObjectRef[_T3],
        a4: _T4 | ObjectRef[_T4],
        a5: _T5 | ObjectRef[_T5],
        a6: _T6 | ObjectRef[_T6],
        a7: _T7 | ObjectRef[_T7],
        a8: _T8 | ObjectRef[_T8],
        a9: _T9 | ObjectRef[_T9],
        /,
    ) -> ObjectRef[Any]: ...
    @overload
    def remote(self: Callee[Callable[_P, Unknown]], *args: _P.args, **kwargs: _P.kwargs) -> ObjectRef[Any]: ...
    @overload
    def remote(self: Callee[Callable[[_T0], Iterator[_Y]]], a0: _T0 | ObjectRef[_T0], /) -> ObjectRefGenerator[_Y]: ...
    @overload
    def remote(
        self: Callee[Callable[[_T0, _T1], Iterator[_Y]]], a0: _T0 | ObjectRef[_T0], a1: _T1 | ObjectRef[_T1], /
    ) -> ObjectRefGenerator[_Y]: ...
    @overload
    def remote(
        self: Callee[Callable[[_T0, _T1, _T2], Iterator[_Y]]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        a2: _T2 | ObjectRef[_T2],
        /,
    ) -> ObjectRefGenerator[_Y]: ...
    @overload
    def remote(
        self: Callee[Callable[[_T0, _T1, _T2, _T3], Iterator[_Y]]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        a2: _T2 | ObjectRef[_T2],
        a3: _T3 | ObjectRef[_T3],
        /,
    ) -> ObjectRefGenerator[_Y]: ...
    @overload
    def remote(
        self: Callee[Callable[[_T0, _T1, _T2, _T3, _T4], Iterator[_Y]]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        a2: _T2 | ObjectRef[_T2],
        a3: _T3 | ObjectRef[_T3],
        a4: _T4 | ObjectRef[_T4],
        /,
    ) -> ObjectRefGenerator[_Y]: ...
    @overload
    def remote(
        self: Callee[Callable[[_T0, _T1, _T2, _T3, _T4, _T5], Iterator[_Y]]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        a2: _T2 | ObjectRef[_T2],
        a3: _T3 | ObjectRef[_T3],
        a4: _T4 | ObjectRef[_T4],
        a5: _T5 | ObjectRef[_T5],
        /,
    ) -> ObjectRefGenerator[_Y]: ...
    @overload
    def remote(
        self: Callee[Callable[[_T0, _T1, _T2, _T3, _T4, _T5, _T6], Iterator[_Y]]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        a2: _T2 | ObjectRef[_T2],
        a3: _T3 | ObjectRef[_T3],
        a4: _T4 | ObjectRef[_T4],
        a5: _T5 | ObjectRef[_T5],
        a6: _T6 | ObjectRef[_T6],
        /,
    ) -> ObjectRefGenerator[_Y]: ...
    @overload
    def remote(
        self: Callee[Callable[[_T0, _T1, _T2, _T3, _T4, _T5, _T6, _T7], Iterator[_Y]]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        a2: _T2 | ObjectRef[_T2],
        a3: _T3 | ObjectRef[_T3],
        a4: _T4 | ObjectRef[_T4],
        a5: _T5 | ObjectRef[_T5],
        a6: _T6 | ObjectRef[_T6],
        a7: _T7 | ObjectRef[_T7],
        /,
    ) -> ObjectRefGenerator[_Y]: ...
    @overload
    def remote(
        self: Callee[Callable[[_T0, _T1, _T2, _T3, _T4, _T5, _T6, _T7, _T8], Iterator[_Y]]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        a2: _T2 | ObjectRef[_T2],
        a3: _T3 | ObjectRef[_T3],
        a4: _T4 | ObjectRef[_T4],
        a5: _T5 | ObjectRef[_T5],
        a6: _T6 | ObjectRef[_T6],
        a7: _T7 | ObjectRef[_T7],
        a8: _T8 | ObjectRef[_T8],
        /,
    ) -> ObjectRefGenerator[_Y]: ...
    @overload
    def remote(
        self: Callee[Callable[[_T0, _T1, _T2, _T3, _T4, _T5, _T6, _T7, _T8, _T9], Iterator[_Y]]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        a2: _T2 | ObjectRef[_T2],
        a3: _T3 | ObjectRef[_T3],
        a4: _T4 | ObjectRef[_T4],
        a5: _T5 | ObjectRef[_T5],
        a6: _T6 | ObjectRef[_T6],
        a7: _T7 | ObjectRef[_T7],
        a8: _T8 | ObjectRef[_T8],
        a9: _T9 | ObjectRef[_T9],
        /,
    ) -> ObjectRefGenerator[_Y]: ...
    @overload
    def remote(self: Callee[Callable[_P, Iterator[_Y]]], *args: _P.args, **kwargs: _P.kwargs) -> ObjectRefGenerator[_Y]: ...
    @overload
    def remote(self: Callee[Callable[[_T0], AsyncIterator[_Y]]], a0: _T0 | ObjectRef[_T0], /) -> ObjectRefGenerator[_Y]: ...
    @overload
    def remote(
        self: Callee[Callable[[_T0, _T1], AsyncIterator[_Y]]], a0: _T0 | ObjectRef[_T0], a1: _T1 | ObjectRef[_T1], /
    ) -> ObjectRefGenerator[_Y]: ...
    @overload
    def remote(
        self: Callee[Callable[[_T0, _T1, _T2], AsyncIterator[_Y]]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        a2: _T2 | ObjectRef[_T2],
        /,
    ) -> ObjectRefGenerator[_Y]: ...
    @overload
    def remote(
        self: Callee[Callable[[_T0, _T1, _T2, _T3], AsyncIterator[_Y]]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        a2: _T2 | ObjectRef[_T2],
        a3: _T3 | ObjectRef[_T3],
        /,
    ) -> ObjectRefGenerator[_Y]: ...
    @overload
    def remote(
        self: Callee[Callable[[_T0, _T1, _T2, _T3, _T4], AsyncIterator[_Y]]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        a2: _T2 | ObjectRef[_T2],
        a3: _T3 | ObjectRef[_T3],
        a4: _T4 | ObjectRef[_T4],
        /,
    ) -> ObjectRefGenerator[_Y]: ...
    @overload
    def remote(
        self: Callee[Callable[[_T0, _T1, _T2, _T3, _T4, _T5], AsyncIterator[_Y]]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        a2: _T2 | ObjectRef[_T2],
        a3: _T3 | ObjectRef[_T3],
        a4: _T4 | ObjectRef[_T4],
        a5: _T5 | ObjectRef[_T5],
        /,
    ) -> ObjectRefGenerator[_Y]: ...
    @overload
    def remote(
        self: Callee[Callable[[_T0, _T1, _T2, _T3, _T4, _T5, _T6], AsyncIterator[_Y]]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        a2: _T2 | ObjectRef[_T2],
        a3: _T3 | ObjectRef[_T3],
        a4: _T4 | ObjectRef[_T4],
        a5: _T5 | ObjectRef[_T5],
        a6: _T6 | ObjectRef[_T6],
        /,
    ) -> ObjectRefGenerator[_Y]: ...
    @overload
    def remote(
        self: Callee[Callable[[_T0, _T1, _T2, _T3, _T4, _T5, _T6, _T7], AsyncIterator[_Y]]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        a2: _T2 | ObjectRef[_T2],
        a3: _T3 | ObjectRef[_T3],
        a4: _T4 | ObjectRef[_T4],
        a5: _T5 | ObjectRef[_T5],
        a6: _T6 | ObjectRef[_T6],
        a7: _T7 | ObjectRef[_T7],
        /,
    ) -> ObjectRefGenerator[_Y]: ...
    @overload
    def remote(
        self: Callee[Callable[[_T0, _T1, _T2, _T3, _T4, _T5, _T6, _T7, _T8], AsyncIterator[_Y]]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        a2: _T2 | ObjectRef[_T2],
        a3: _T3 | ObjectRef[_T3],
        a4: _T4 | ObjectRef[_T4],
        a5: _T5 | ObjectRef[_T5],
        a6: _T6 | ObjectRef[_T6],
        a7: _T7 | ObjectRef[_T7],
        a8: _T8 | ObjectRef[_T8],
        /,
    ) -> ObjectRefGenerator[_Y]: ...
    @overload
    def remote(
        self: Callee[Callable[[_T0, _T1, _T2, _T3, _T4, _T5, _T6, _T7, _T8, _T9], AsyncIterator[_Y]]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        a2: _T2 | ObjectRef[_T2],
        a3: _T3 | ObjectRef[_T3],
        a4: _T4 | ObjectRef[_T4],
        a5: _T5 | ObjectRef[_T5],
        a6: _T6 | ObjectRef[_T6],
        a7: _T7 | ObjectRef[_T7],
        a8: _T8 | ObjectRef[_T8],
        a9: _T9 | ObjectRef[_T9],
        /,
    ) -> ObjectRefGenerator[_Y]: ...
    @overload
    def remote(self: Callee[Callable[_P, AsyncIterator[_Y]]], *args: _P.args, **kwargs: _P.kwargs) -> ObjectRefGenerator[_Y]: ...
    @overload
    def remote(self: Callee[Callable[[_T0], _R]], a0: _T0 | ObjectRef[_T0], /) -> ObjectRef[_R]: ...
    @overload
    def remote(self: Callee[Callable[[_T0, _T1], _R]], a0: _T0 | ObjectRef[_T0], a1: _T1 | ObjectRef[_T1], /) -> ObjectRef[_R]: ...
    @overload
    def remote(
        self: Callee[Callable[[_T0, _T1, _T2], _R]], a0: _T0 | ObjectRef[_T0], a1: _T1 | ObjectRef[_T1], a2: _T2 | ObjectRef[_T2], /
    ) -> ObjectRef[_R]: ...
    @overload
    def remote(
        self: Callee[Callable[[_T0, _T1, _T2, _T3], _R]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        a2: _T2 | ObjectRef[_T2],
        a3: _T3 | ObjectRef[_T3],
        /,
    ) -> ObjectRef[_R]: ...
    @overload
    def remote(
        self: Callee[Callable[[_T0, _T1, _T2, _T3, _T4], _R]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        a2: _T2 | ObjectRef[_T2],
        a3: _T3 | ObjectRef[_T3],
        a4: _T4 | ObjectRef[_T4],
        /,
    ) -> ObjectRef[_R]: ...
    @overload
    def remote(
        self: Callee[Callable[[_T0, _T1, _T2, _T3, _T4, _T5], _R]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        a2: _T2 | ObjectRef[_T2],
        a3: _T3 | ObjectRef[_T3],
        a4: _T4 | ObjectRef[_T4],
        a5: _T5 | ObjectRef[_T5],
        /,
    ) -> ObjectRef[_R]: ...
    @overload
    def remote(
        self: Callee[Callable[[_T0, _T1, _T2, _T3, _T4, _T5, _T6], _R]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        a2: _T2 | ObjectRef[_T2],
        a3: _T3 | ObjectRef[_T3],
        a4: _T4 | ObjectRef[_T4],
        a5: _T5 | ObjectRef[_T5],
        a6: _T6 | ObjectRef[_T6],
        /,
    ) -> ObjectRef[_R]: ...
    @overload
    def remote(
        self: Callee[Callable[[_T0, _T1, _T2, _T3, _T4, _T5, _T6, _T7], _R]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        a2: _T2 | ObjectRef[_T2],
        a3: _T3 | ObjectRef[_T3],
        a4: _T4 | ObjectRef[_T4],
        a5: _T5 | ObjectRef[_T5],
        a6: _T6 | ObjectRef[_T6],
        a7: _T7 | ObjectRef[_T7],
        /,
    ) -> ObjectRef[_R]: ...
    @overload
    def remote(
        self: Callee[Callable[[_T0, _T1, _T2, _T3, _T4, _T5, _T6, _T7, _T8], _R]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        a2: _T2 | ObjectRef[_T2],
        a3: _T3 | ObjectRef[_T3],
        a4: _T4 | ObjectRef[_T4],
        a5: _T5 | ObjectRef[_T5],
        a6: _T6 | ObjectRef[_T6],
        a7: _T7 | ObjectRef[_T7],
        a8: _T8 | ObjectRef[_T8],
        /,
    ) -> ObjectRef[_R]: ...
    @overload
    def remote(
        self: Callee[Callable[[_T0, _T1, _T2, _T3, _T4, _T5, _T6, _T7, _T8, _T9], _R]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        a2: _T2 | ObjectRef[_T2],
        a3: _T3 | ObjectRef[_T3],
        a4: _T4 | ObjectRef[_T4],
        a5: _T5 | ObjectRef[_T5],
        a6: _T6 | ObjectRef[_T6],
        a7: _T7 | ObjectRef[_T7],
        a8: _T8 | ObjectRef[_T8],
        a9: _T9 | ObjectRef[_T9],
        /,
    ) -> ObjectRef[_R]: ...
    @overload
    def remote(self: Callee[Callable[_P, _R]], *args: _P.args, **kwargs: _P.kwargs) -> ObjectRef[_R]: ...
    def bind(self: Callee[Callable[..., _R]], *args: Any, **kwargs: Any) -> BoundNode[_R]: ...

class RemoteFunction(Callee[_F_co], _RemoteFunction):
    """What `remote` makes of a function: of the same parameters and result."""

    @overload  # type: ignore[override]
    def options(self, *, num_returns: Several, **options: Unpack[TaskOptionsApart]) -> SeveralFunction[_F_co]: ...
    @overload
    def options(self, **options: Unpack[TaskOptions]) -> Self: ...

class SeveralFunction(RemoteFunction[_F_co]):
    """A remote function whose calls give a list of refs."""

    def remote(self, *args: Any, **kwargs: Any) -> list[ObjectRef[Any]]: ...  # type: ignore[override]

class RemoteMethod(Callee[_F_co], _ActorMethod):
    """A method of a handle."""

    @overload  # type: ignore[override]
    def options(self, *, num_returns: Several, **options: Unpack[MethodOptionsApart]) -> SeveralMethod[_F_co]: ...
    @overload
    def options(self, **options: Unpack[MethodOptions]) -> Self: ...

class SeveralMethod(RemoteMethod[_F_co]):
    """A method whose calls give a list of refs."""

    def remote(self, *args: Any, **kwargs: Any) -> list[ObjectRef[Any]]: ...  # type: ignore[override]

class DecoratedMethod(Generic[_P, _Result_co, _R]):
    """What `method` makes of a method: called on an instance, inside of the actor, it is the method; on an `ActorProxy` a `RemoteMethod`."""

    @overload
    def __get__(self, instance: None, owner: Any, /) -> RemoteMethod[Callable[_P, _R]]: ...
    @overload
    def __get__(self, instance: object, owner: Any, /) -> Callable[_P, _Result_co]: ...

class DecoratedSeveral(DecoratedMethod[_P, _Result_co, _R]):
    """As `DecoratedMethod`, with ``num_returns``."""

    @overload
    def __get__(self, instance: None, owner: Any, /) -> SeveralMethod[Callable[_P, _R]]: ...
    @overload
    def __get__(self, instance: object, owner: Any, /) -> Callable[_P, _Result_co]: ...

class SeveralMethodDecorator(Protocol):
    """What ``method(num_returns=2, ...)`` returns."""

    @overload
    def __call__(self, method: Callable[Concatenate[Any, _P], Awaitable[_R]], /) -> DecoratedSeveral[_P, Awaitable[_R], _R]: ...
    @overload
    def __call__(self, method: Callable[Concatenate[Any, _P], _R], /) -> DecoratedSeveral[_P, _R, _R]: ...

class MethodDecorator(Protocol):
    """What ``method(...)`` returns."""

    @overload
    def __call__(self, method: Callable[Concatenate[Any, _P], Awaitable[_R]], /) -> DecoratedMethod[_P, Awaitable[_R], _R]: ...
    @overload
    def __call__(self, method: Callable[Concatenate[Any, _P], _R], /) -> DecoratedMethod[_P, _R, _R]: ...

class CommonOptions(TypedDict, total=False):
    """Options of tasks and of actors."""

    num_cpus: float | None
    num_gpus: float | None
    resources: dict[str, float] | None
    accelerator_type: str | None
    memory: float | None
    object_store_memory: int | None
    label_selector: dict[str, str] | None
    fallback_strategy: list[dict[str, Any]] | None
    runtime_env: Mapping[str, Any] | None
    scheduling_strategy: Any
    cpu_affinity: list[int] | str | None
    enable_task_events: bool
    name: str | None
    placement_group: PlacementGroup | Literal["default"] | None
    placement_group_bundle_index: int
    placement_group_capture_child_tasks: bool | None
    _labels: dict[str, str] | None

class TaskOptionsApart(CommonOptions, total=False):
    """Options of tasks, apart from ``num_returns``."""

    max_retries: int | None
    retry_exceptions: bool | list[type[BaseException]] | tuple[type[BaseException], ...]
    _generator_backpressure_num_objects: int | None

class TaskOptions(TaskOptionsApart, total=False):
    """What ``f.options`` takes."""

    num_returns: int | Literal["streaming", "dynamic"] | None

class ActorOptions(CommonOptions, total=False):
    """What ``A.options`` takes."""

    enable_tensor_transport: bool | None
    lifetime: Literal["detached", "non_detached"] | None
    max_concurrency: int | None
    max_restarts: int
    max_task_retries: int
    max_pending_calls: int
    namespace: str | None
    get_if_exists: bool
    allow_out_of_order_execution: bool | None
    _actor_generator_backpressure_num_objects: int | None

class RemoteOptionsApart(TaskOptionsApart, ActorOptions, total=False):
    """What `remote` takes, apart from ``num_returns``."""

    max_calls: int | None
    _num_objects_per_yield: int | None
    concurrency_groups: dict[str, int] | list[dict[str, Any]] | None

class RemoteOptions(RemoteOptionsApart, total=False):
    """What `remote` takes."""

    num_returns: int | Literal["streaming", "dynamic"] | None

class MethodOptionsApart(TypedDict, total=False):
    """Options of methods, apart from ``num_returns``."""

    name: str
    concurrency_group: str | None
    max_task_retries: int | None
    retry_exceptions: bool | list[type[BaseException]] | tuple[type[BaseException], ...] | None
    enable_task_events: bool | None
    tensor_transport: str | None
    _generator_backpressure_num_objects: int | None
    _labels: dict[str, str] | None

class MethodOptions(MethodOptionsApart, total=False):
    """What ``handle.m.options`` takes."""

    num_returns: int | Literal["streaming", "dynamic"] | None

class InitOptions(TypedDict, total=False):
    """What `init` takes besides its own: arguments of Ray's that mean nothing on one host, and rarer ones."""

    _driver_object_store_memory: Any
    _enable_object_reconstruction: Any
    _metrics_export_port: Any
    _node_ip_address: str | None
    _plasma_directory: Any
    _redis_password: Any
    _redis_username: Any
    _tracing_startup_hook: Any
    cgroup_path: Any
    configure_logging: Any
    dashboard_host: Any
    dashboard_port: Any
    enable_resource_isolation: Any
    include_dashboard: Any
    logging_format: Any
    proxy_server_url: Any
    system_reserved_cpu: Any
    system_reserved_memory: Any
    job_config: JobConfig | None
    object_spilling_directory: str | None
    _memory: int | None
    _temp_dir: str | None
    _node_name: str | None
    _system_config: dict[str, Any] | None
    _skip_env_hook: bool

class SeveralDecorator(Protocol):
    """What ``remote(num_returns=2, ...)`` returns."""

    def __call__(self, target: _F, /) -> SeveralFunction[_F]: ...

class RemoteDecorator(Protocol):
    """What ``remote(...)`` returns."""

    @overload
    def __call__(self, target: type[_T], /) -> ActorClass[_T]: ...
    @overload
    def __call__(self, target: _F, /) -> RemoteFunction[_F]: ...

class BoundNode(DAGNode[_Result_co], metaclass=ABCMeta):
    """What `bind` gives: a node, or as many as there are `num_returns`, which is known only as it runs."""

    def __iter__(self) -> Iterator[DAGNode[Any]]: ...
    def __getitem__(self, index: int, /) -> DAGNode[Any]: ...

class CompiledGraph(Generic[_Given_co]):
    """What `experimental_compile` makes: whatever engine runs it."""

    def execute(self, *args: Any, **kwargs: Any) -> _Given_co: ...
    async def execute_async(self, *args: Any, **kwargs: Any) -> Any: ...
    def teardown(self, kill_actors: bool = False) -> None: ...
    def __getattr__(self, name: str) -> Any: ...

class ActorHandle(_ActorHandle[_T]):
    """A handle beside the class of its actor: what the class does not have, the handle has not either."""

    def __getattr__(self, name: str) -> NoReturn: ...

ActorProxy: TypeAlias = ActorHandle[_T] | type[_T]
