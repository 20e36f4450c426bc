"""What type checkers are told of remote functions and methods. Only `ActorProxy` exists while a program runs.

A call takes for each positional argument the value or a ref of it, which `ParamSpec` alone cannot say: hence an overload per number of
arguments. The last of each kind takes keywords and any number of arguments, as values. The kinds are told apart by what the function returns,
`_Unknown` first, which only Any is: nothing of an untyped function is taken for a generator.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from typing import (
    Any,
    Concatenate,
    Generic,
    Literal,
    NoReturn,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypedDict,
    TypeVar,
    final,
    overload,
)

from typing_extensions import Self  # type checkers have it, programs need not

from mray._api.actor import ActorClass
from mray._api.actor import ActorMethod as _ActorMethod
from mray._api.actor_handle import ActorHandle as _ActorHandle
from mray._api.dag_node import DAGNode
from mray._api.object_ref import ObjectRef
from mray._api.placement_group import PlacementGroup
from mray._api.ref_generator import ObjectRefGenerator
from mray._api.remote_function import RemoteFunction as _RemoteFunction

_P = ParamSpec("_P")
_R = TypeVar("_R")
_T = TypeVar("_T")
_Y = TypeVar("_Y")
_F = TypeVar("_F", bound=Callable[..., Any])
_F_co = TypeVar("_F_co", bound=Callable[..., Any], covariant=True)
_Result_co = TypeVar("_Result_co", covariant=True)
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

@final
class _Unknown:
    """Nothing but Any passes for this."""

    def _nobody_has_this(self, _: NoReturn) -> NoReturn: ...

class RemoteFunction(_RemoteFunction, Generic[_F_co]):
    """What `remote` makes of a function: of the same parameters and result."""

    @overload
    def remote(self: RemoteFunction[Callable[[_T0], _Unknown]], a0: _T0 | ObjectRef[_T0], /) -> ObjectRef[Any]: ...
    @overload
    def remote(
        self: RemoteFunction[Callable[[_T0, _T1], _Unknown]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        /,
    ) -> ObjectRef[Any]: ...
    @overload
    def remote(
        self: RemoteFunction[Callable[[_T0, _T1, _T2], _Unknown]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        a2: _T2 | ObjectRef[_T2],
        /,
    ) -> ObjectRef[Any]: ...
    @overload
    def remote(
        self: RemoteFunction[Callable[[_T0, _T1, _T2, _T3], _Unknown]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        a2: _T2 | ObjectRef[_T2],
        a3: _T3 | ObjectRef[_T3],
        /,
    ) -> ObjectRef[Any]: ...
    @overload
    def remote(
        self: RemoteFunction[Callable[[_T0, _T1, _T2, _T3, _T4], _Unknown]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        a2: _T2 | ObjectRef[_T2],
        a3: _T3 | ObjectRef[_T3],
        a4: _T4 | ObjectRef[_T4],
        /,
    ) -> ObjectRef[Any]: ...
    @overload
    def remote(
        self: RemoteFunction[Callable[[_T0, _T1, _T2, _T3, _T4, _T5], _Unknown]],
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
        self: RemoteFunction[Callable[[_T0, _T1, _T2, _T3, _T4, _T5, _T6], _Unknown]],
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
        self: RemoteFunction[Callable[[_T0, _T1, _T2, _T3, _T4, _T5, _T6, _T7], _Unknown]],
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
        self: RemoteFunction[Callable[[_T0, _T1, _T2, _T3, _T4, _T5, _T6, _T7, _T8], _Unknown]],
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
        self: RemoteFunction[Callable[[_T0, _T1, _T2, _T3, _T4, _T5, _T6, _T7, _T8, _T9], _Unknown]],
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
    def remote(self: RemoteFunction[Callable[_P, _Unknown]], *args: _P.args, **kwargs: _P.kwargs) -> ObjectRef[Any]: ...
    @overload
    def remote(self: RemoteFunction[Callable[[_T0], Generator[_Y, Any, Any]]], a0: _T0 | ObjectRef[_T0], /) -> ObjectRefGenerator[_Y]: ...
    @overload
    def remote(
        self: RemoteFunction[Callable[[_T0, _T1], Generator[_Y, Any, Any]]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        /,
    ) -> ObjectRefGenerator[_Y]: ...
    @overload
    def remote(
        self: RemoteFunction[Callable[[_T0, _T1, _T2], Generator[_Y, Any, Any]]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        a2: _T2 | ObjectRef[_T2],
        /,
    ) -> ObjectRefGenerator[_Y]: ...
    @overload
    def remote(
        self: RemoteFunction[Callable[[_T0, _T1, _T2, _T3], Generator[_Y, Any, Any]]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        a2: _T2 | ObjectRef[_T2],
        a3: _T3 | ObjectRef[_T3],
        /,
    ) -> ObjectRefGenerator[_Y]: ...
    @overload
    def remote(
        self: RemoteFunction[Callable[[_T0, _T1, _T2, _T3, _T4], Generator[_Y, Any, Any]]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        a2: _T2 | ObjectRef[_T2],
        a3: _T3 | ObjectRef[_T3],
        a4: _T4 | ObjectRef[_T4],
        /,
    ) -> ObjectRefGenerator[_Y]: ...
    @overload
    def remote(
        self: RemoteFunction[Callable[[_T0, _T1, _T2, _T3, _T4, _T5], Generator[_Y, Any, Any]]],
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
        self: RemoteFunction[Callable[[_T0, _T1, _T2, _T3, _T4, _T5, _T6], Generator[_Y, Any, Any]]],
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
        self: RemoteFunction[Callable[[_T0, _T1, _T2, _T3, _T4, _T5, _T6, _T7], Generator[_Y, Any, Any]]],
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
        self: RemoteFunction[Callable[[_T0, _T1, _T2, _T3, _T4, _T5, _T6, _T7, _T8], Generator[_Y, Any, Any]]],
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
        self: RemoteFunction[Callable[[_T0, _T1, _T2, _T3, _T4, _T5, _T6, _T7, _T8, _T9], Generator[_Y, Any, Any]]],
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
    def remote(
        self: RemoteFunction[Callable[_P, Generator[_Y, Any, Any]]], *args: _P.args, **kwargs: _P.kwargs
    ) -> ObjectRefGenerator[_Y]: ...
    @overload
    def remote(self: RemoteFunction[Callable[[_T0], AsyncGenerator[_Y, Any]]], a0: _T0 | ObjectRef[_T0], /) -> ObjectRefGenerator[_Y]: ...
    @overload
    def remote(
        self: RemoteFunction[Callable[[_T0, _T1], AsyncGenerator[_Y, Any]]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        /,
    ) -> ObjectRefGenerator[_Y]: ...
    @overload
    def remote(
        self: RemoteFunction[Callable[[_T0, _T1, _T2], AsyncGenerator[_Y, Any]]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        a2: _T2 | ObjectRef[_T2],
        /,
    ) -> ObjectRefGenerator[_Y]: ...
    @overload
    def remote(
        self: RemoteFunction[Callable[[_T0, _T1, _T2, _T3], AsyncGenerator[_Y, Any]]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        a2: _T2 | ObjectRef[_T2],
        a3: _T3 | ObjectRef[_T3],
        /,
    ) -> ObjectRefGenerator[_Y]: ...
    @overload
    def remote(
        self: RemoteFunction[Callable[[_T0, _T1, _T2, _T3, _T4], AsyncGenerator[_Y, Any]]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        a2: _T2 | ObjectRef[_T2],
        a3: _T3 | ObjectRef[_T3],
        a4: _T4 | ObjectRef[_T4],
        /,
    ) -> ObjectRefGenerator[_Y]: ...
    @overload
    def remote(
        self: RemoteFunction[Callable[[_T0, _T1, _T2, _T3, _T4, _T5], AsyncGenerator[_Y, Any]]],
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
        self: RemoteFunction[Callable[[_T0, _T1, _T2, _T3, _T4, _T5, _T6], AsyncGenerator[_Y, Any]]],
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
        self: RemoteFunction[Callable[[_T0, _T1, _T2, _T3, _T4, _T5, _T6, _T7], AsyncGenerator[_Y, Any]]],
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
        self: RemoteFunction[Callable[[_T0, _T1, _T2, _T3, _T4, _T5, _T6, _T7, _T8], AsyncGenerator[_Y, Any]]],
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
        self: RemoteFunction[Callable[[_T0, _T1, _T2, _T3, _T4, _T5, _T6, _T7, _T8, _T9], AsyncGenerator[_Y, Any]]],
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
    def remote(
        self: RemoteFunction[Callable[_P, AsyncGenerator[_Y, Any]]], *args: _P.args, **kwargs: _P.kwargs
    ) -> ObjectRefGenerator[_Y]: ...
    @overload
    def remote(self: RemoteFunction[Callable[[_T0], _R]], a0: _T0 | ObjectRef[_T0], /) -> ObjectRef[_R]: ...
    @overload
    def remote(self: RemoteFunction[Callable[[_T0, _T1], _R]], a0: _T0 | ObjectRef[_T0], a1: _T1 | ObjectRef[_T1], /) -> ObjectRef[_R]: ...
    @overload
    def remote(
        self: RemoteFunction[Callable[[_T0, _T1, _T2], _R]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        a2: _T2 | ObjectRef[_T2],
        /,
    ) -> ObjectRef[_R]: ...
    @overload
    def remote(
        self: RemoteFunction[Callable[[_T0, _T1, _T2, _T3], _R]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        a2: _T2 | ObjectRef[_T2],
        a3: _T3 | ObjectRef[_T3],
        /,
    ) -> ObjectRef[_R]: ...
    @overload
    def remote(
        self: RemoteFunction[Callable[[_T0, _T1, _T2, _T3, _T4], _R]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        a2: _T2 | ObjectRef[_T2],
        a3: _T3 | ObjectRef[_T3],
        a4: _T4 | ObjectRef[_T4],
        /,
    ) -> ObjectRef[_R]: ...
    @overload
    def remote(
        self: RemoteFunction[Callable[[_T0, _T1, _T2, _T3, _T4, _T5], _R]],
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
        self: RemoteFunction[Callable[[_T0, _T1, _T2, _T3, _T4, _T5, _T6], _R]],
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
        self: RemoteFunction[Callable[[_T0, _T1, _T2, _T3, _T4, _T5, _T6, _T7], _R]],
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
        self: RemoteFunction[Callable[[_T0, _T1, _T2, _T3, _T4, _T5, _T6, _T7, _T8], _R]],
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
        self: RemoteFunction[Callable[[_T0, _T1, _T2, _T3, _T4, _T5, _T6, _T7, _T8, _T9], _R]],
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
    def remote(self: RemoteFunction[Callable[_P, _R]], *args: _P.args, **kwargs: _P.kwargs) -> ObjectRef[_R]: ...
    def options(self, **options: Any) -> Self: ...  # type: ignore[override]
    def bind(self, *args: Any, **kwargs: Any) -> DAGNode: ...

class RemoteMethod(_ActorMethod, Generic[_F_co]):
    """A method that `method` decorates, as the handle of its actor has it."""

    @overload
    def remote(self: RemoteMethod[Callable[[_T0], _Unknown]], a0: _T0 | ObjectRef[_T0], /) -> ObjectRef[Any]: ...
    @overload
    def remote(
        self: RemoteMethod[Callable[[_T0, _T1], _Unknown]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        /,
    ) -> ObjectRef[Any]: ...
    @overload
    def remote(
        self: RemoteMethod[Callable[[_T0, _T1, _T2], _Unknown]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        a2: _T2 | ObjectRef[_T2],
        /,
    ) -> ObjectRef[Any]: ...
    @overload
    def remote(
        self: RemoteMethod[Callable[[_T0, _T1, _T2, _T3], _Unknown]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        a2: _T2 | ObjectRef[_T2],
        a3: _T3 | ObjectRef[_T3],
        /,
    ) -> ObjectRef[Any]: ...
    @overload
    def remote(
        self: RemoteMethod[Callable[[_T0, _T1, _T2, _T3, _T4], _Unknown]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        a2: _T2 | ObjectRef[_T2],
        a3: _T3 | ObjectRef[_T3],
        a4: _T4 | ObjectRef[_T4],
        /,
    ) -> ObjectRef[Any]: ...
    @overload
    def remote(
        self: RemoteMethod[Callable[[_T0, _T1, _T2, _T3, _T4, _T5], _Unknown]],
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
        self: RemoteMethod[Callable[[_T0, _T1, _T2, _T3, _T4, _T5, _T6], _Unknown]],
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
        self: RemoteMethod[Callable[[_T0, _T1, _T2, _T3, _T4, _T5, _T6, _T7], _Unknown]],
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
        self: RemoteMethod[Callable[[_T0, _T1, _T2, _T3, _T4, _T5, _T6, _T7, _T8], _Unknown]],
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
        self: RemoteMethod[Callable[[_T0, _T1, _T2, _T3, _T4, _T5, _T6, _T7, _T8, _T9], _Unknown]],
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
    def remote(self: RemoteMethod[Callable[_P, _Unknown]], *args: _P.args, **kwargs: _P.kwargs) -> ObjectRef[Any]: ...
    @overload
    def remote(self: RemoteMethod[Callable[[_T0], Generator[_Y, Any, Any]]], a0: _T0 | ObjectRef[_T0], /) -> ObjectRefGenerator[_Y]: ...
    @overload
    def remote(
        self: RemoteMethod[Callable[[_T0, _T1], Generator[_Y, Any, Any]]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        /,
    ) -> ObjectRefGenerator[_Y]: ...
    @overload
    def remote(
        self: RemoteMethod[Callable[[_T0, _T1, _T2], Generator[_Y, Any, Any]]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        a2: _T2 | ObjectRef[_T2],
        /,
    ) -> ObjectRefGenerator[_Y]: ...
    @overload
    def remote(
        self: RemoteMethod[Callable[[_T0, _T1, _T2, _T3], Generator[_Y, Any, Any]]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        a2: _T2 | ObjectRef[_T2],
        a3: _T3 | ObjectRef[_T3],
        /,
    ) -> ObjectRefGenerator[_Y]: ...
    @overload
    def remote(
        self: RemoteMethod[Callable[[_T0, _T1, _T2, _T3, _T4], Generator[_Y, Any, Any]]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        a2: _T2 | ObjectRef[_T2],
        a3: _T3 | ObjectRef[_T3],
        a4: _T4 | ObjectRef[_T4],
        /,
    ) -> ObjectRefGenerator[_Y]: ...
    @overload
    def remote(
        self: RemoteMethod[Callable[[_T0, _T1, _T2, _T3, _T4, _T5], Generator[_Y, Any, Any]]],
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
        self: RemoteMethod[Callable[[_T0, _T1, _T2, _T3, _T4, _T5, _T6], Generator[_Y, Any, Any]]],
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
        self: RemoteMethod[Callable[[_T0, _T1, _T2, _T3, _T4, _T5, _T6, _T7], Generator[_Y, Any, Any]]],
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
        self: RemoteMethod[Callable[[_T0, _T1, _T2, _T3, _T4, _T5, _T6, _T7, _T8], Generator[_Y, Any, Any]]],
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
        self: RemoteMethod[Callable[[_T0, _T1, _T2, _T3, _T4, _T5, _T6, _T7, _T8, _T9], Generator[_Y, Any, Any]]],
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
    def remote(
        self: RemoteMethod[Callable[_P, Generator[_Y, Any, Any]]], *args: _P.args, **kwargs: _P.kwargs
    ) -> ObjectRefGenerator[_Y]: ...
    @overload
    def remote(self: RemoteMethod[Callable[[_T0], AsyncGenerator[_Y, Any]]], a0: _T0 | ObjectRef[_T0], /) -> ObjectRefGenerator[_Y]: ...
    @overload
    def remote(
        self: RemoteMethod[Callable[[_T0, _T1], AsyncGenerator[_Y, Any]]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        /,
    ) -> ObjectRefGenerator[_Y]: ...
    @overload
    def remote(
        self: RemoteMethod[Callable[[_T0, _T1, _T2], AsyncGenerator[_Y, Any]]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        a2: _T2 | ObjectRef[_T2],
        /,
    ) -> ObjectRefGenerator[_Y]: ...
    @overload
    def remote(
        self: RemoteMethod[Callable[[_T0, _T1, _T2, _T3], AsyncGenerator[_Y, Any]]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        a2: _T2 | ObjectRef[_T2],
        a3: _T3 | ObjectRef[_T3],
        /,
    ) -> ObjectRefGenerator[_Y]: ...
    @overload
    def remote(
        self: RemoteMethod[Callable[[_T0, _T1, _T2, _T3, _T4], AsyncGenerator[_Y, Any]]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        a2: _T2 | ObjectRef[_T2],
        a3: _T3 | ObjectRef[_T3],
        a4: _T4 | ObjectRef[_T4],
        /,
    ) -> ObjectRefGenerator[_Y]: ...
    @overload
    def remote(
        self: RemoteMethod[Callable[[_T0, _T1, _T2, _T3, _T4, _T5], AsyncGenerator[_Y, Any]]],
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
        self: RemoteMethod[Callable[[_T0, _T1, _T2, _T3, _T4, _T5, _T6], AsyncGenerator[_Y, Any]]],
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
        self: RemoteMethod[Callable[[_T0, _T1, _T2, _T3, _T4, _T5, _T6, _T7], AsyncGenerator[_Y, Any]]],
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
        self: RemoteMethod[Callable[[_T0, _T1, _T2, _T3, _T4, _T5, _T6, _T7, _T8], AsyncGenerator[_Y, Any]]],
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
        self: RemoteMethod[Callable[[_T0, _T1, _T2, _T3, _T4, _T5, _T6, _T7, _T8, _T9], AsyncGenerator[_Y, Any]]],
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
    def remote(
        self: RemoteMethod[Callable[_P, AsyncGenerator[_Y, Any]]], *args: _P.args, **kwargs: _P.kwargs
    ) -> ObjectRefGenerator[_Y]: ...
    @overload
    def remote(self: RemoteMethod[Callable[[_T0], _R]], a0: _T0 | ObjectRef[_T0], /) -> ObjectRef[_R]: ...
    @overload
    def remote(self: RemoteMethod[Callable[[_T0, _T1], _R]], a0: _T0 | ObjectRef[_T0], a1: _T1 | ObjectRef[_T1], /) -> ObjectRef[_R]: ...
    @overload
    def remote(
        self: RemoteMethod[Callable[[_T0, _T1, _T2], _R]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        a2: _T2 | ObjectRef[_T2],
        /,
    ) -> ObjectRef[_R]: ...
    @overload
    def remote(
        self: RemoteMethod[Callable[[_T0, _T1, _T2, _T3], _R]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        a2: _T2 | ObjectRef[_T2],
        a3: _T3 | ObjectRef[_T3],
        /,
    ) -> ObjectRef[_R]: ...
    @overload
    def remote(
        self: RemoteMethod[Callable[[_T0, _T1, _T2, _T3, _T4], _R]],
        a0: _T0 | ObjectRef[_T0],
        a1: _T1 | ObjectRef[_T1],
        a2: _T2 | ObjectRef[_T2],
        a3: _T3 | ObjectRef[_T3],
        a4: _T4 | ObjectRef[_T4],
        /,
    ) -> ObjectRef[_R]: ...
    @overload
    def remote(
        self: RemoteMethod[Callable[[_T0, _T1, _T2, _T3, _T4, _T5], _R]],
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
        self: RemoteMethod[Callable[[_T0, _T1, _T2, _T3, _T4, _T5, _T6], _R]],
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
        self: RemoteMethod[Callable[[_T0, _T1, _T2, _T3, _T4, _T5, _T6, _T7], _R]],
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
        self: RemoteMethod[Callable[[_T0, _T1, _T2, _T3, _T4, _T5, _T6, _T7, _T8], _R]],
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
        self: RemoteMethod[Callable[[_T0, _T1, _T2, _T3, _T4, _T5, _T6, _T7, _T8, _T9], _R]],
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
    def remote(self: RemoteMethod[Callable[_P, _R]], *args: _P.args, **kwargs: _P.kwargs) -> ObjectRef[_R]: ...
    def options(self, **options: Any) -> Self: ...  # type: ignore[override]

class DecoratedMethod(Generic[_P, _Result_co, _R]):
    """What `method` makes of a method: called on an instance, inside of the actor, it is the method; on an `ActorProxy` a `RemoteMethod`."""

    @overload
    def __get__(self, instance: None, owner: Any, /) -> RemoteMethod[Callable[_P, _R]]: ...
    @overload
    def __get__(self, instance: object, owner: Any, /) -> Callable[_P, _Result_co]: ...

class MethodDecorator(Protocol):
    """What ``method(...)`` returns."""

    @overload
    def __call__(self, method: Callable[Concatenate[Any, _P], Awaitable[_R]], /) -> DecoratedMethod[_P, Awaitable[_R], _R]: ...
    @overload
    def __call__(self, method: Callable[Concatenate[Any, _P], _R], /) -> DecoratedMethod[_P, _R, _R]: ...

class RemoteOptions(TypedDict, total=False):
    """What `remote` takes: the options of tasks and of actors."""

    num_returns: int | Literal["streaming", "dynamic"] | None
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
    max_calls: int | None
    max_retries: int | None
    retry_exceptions: bool | list[type[BaseException]] | tuple[type[BaseException], ...]
    _generator_backpressure_num_objects: int | None
    _num_objects_per_yield: int | None
    concurrency_groups: dict[str, int] | list[dict[str, Any]] | None
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

class RemoteDecorator(Protocol):
    """What ``remote(...)`` returns."""

    @overload
    def __call__(self, target: type[_T], /) -> ActorClass[_T]: ...
    @overload
    def __call__(self, target: _F, /) -> RemoteFunction[_F]: ...

class ActorHandle(_ActorHandle[_T]):
    """A handle beside the class of its actor: what the class does not have, the handle has not either."""

    def __getattr__(self, name: str) -> NoReturn: ...

ActorProxy: TypeAlias = ActorHandle[_T] | type[_T]
