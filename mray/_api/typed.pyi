"""Types of remote functions, actors and their methods, for type checkers. Beside this is the little that exists while a program runs.

A call takes for each positional argument the value or a ref of it, which `ParamSpec` alone cannot express: hence one overload of `Call` per
number of arguments. The last one takes keywords and any number of arguments, as values; `mray.mypy_plugin` takes refs there as well. `Remote`
maps the return type of the callable to that of the call: `Unknown`, which only Any matches, comes first, so that an untyped function does not
pass for a generator.
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
#: An argument: a value or a ref of it.
Given: TypeAlias = _T | ObjectRef[_T]

@final
class Unknown:
    """Nothing but Any passes for this."""

    def _nobody_has_this(self, _: NoReturn) -> NoReturn: ...

class Call(Generic[_F_co]):
    """A call with the parameters of a callable, or with refs of them, that returns what the callable does."""

    @overload
    def __call__(self: Call[Callable[[_T0], _R]], a0: Given[_T0], /) -> _R: ...
    @overload
    def __call__(self: Call[Callable[[_T0, _T1], _R]], a0: Given[_T0], a1: Given[_T1], /) -> _R: ...
    @overload
    def __call__(self: Call[Callable[[_T0, _T1, _T2], _R]], a0: Given[_T0], a1: Given[_T1], a2: Given[_T2], /) -> _R: ...
    @overload
    def __call__(
        self: Call[Callable[[_T0, _T1, _T2, _T3], _R]], a0: Given[_T0], a1: Given[_T1], a2: Given[_T2], a3: Given[_T3], /
    ) -> _R: ...
    @overload
    def __call__(
        self: Call[Callable[[_T0, _T1, _T2, _T3, _T4], _R]],
        a0: Given[_T0],
        a1: Given[_T1],
        a2: Given[_T2],
        a3: Given[_T3],
        a4: Given[_T4],
        /,
    ) -> _R: ...
    @overload
    def __call__(
        self: Call[Callable[[_T0, _T1, _T2, _T3, _T4, _T5], _R]],
        a0: Given[_T0],
        a1: Given[_T1],
        a2: Given[_T2],
        a3: Given[_T3],
        a4: Given[_T4],
        a5: Given[_T5],
        /,
    ) -> _R: ...
    @overload
    def __call__(
        self: Call[Callable[[_T0, _T1, _T2, _T3, _T4, _T5, _T6], _R]],
        a0: Given[_T0],
        a1: Given[_T1],
        a2: Given[_T2],
        a3: Given[_T3],
        a4: Given[_T4],
        a5: Given[_T5],
        a6: Given[_T6],
        /,
    ) -> _R: ...
    @overload
    def __call__(
        self: Call[Callable[[_T0, _T1, _T2, _T3, _T4, _T5, _T6, _T7], _R]],
        a0: Given[_T0],
        a1: Given[_T1],
        a2: Given[_T2],
        a3: Given[_T3],
        a4: Given[_T4],
        a5: Given[_T5],
        a6: Given[_T6],
        a7: Given[_T7],
        /,
    ) -> _R: ...
    @overload
    def __call__(
        self: Call[Callable[[_T0, _T1, _T2, _T3, _T4, _T5, _T6, _T7, _T8], _R]],
        a0: Given[_T0],
        a1: Given[_T1],
        a2: Given[_T2],
        a3: Given[_T3],
        a4: Given[_T4],
        a5: Given[_T5],
        a6: Given[_T6],
        a7: Given[_T7],
        a8: Given[_T8],
        /,
    ) -> _R: ...
    @overload
    def __call__(
        self: Call[Callable[[_T0, _T1, _T2, _T3, _T4, _T5, _T6, _T7, _T8, _T9], _R]],
        a0: Given[_T0],
        a1: Given[_T1],
        a2: Given[_T2],
        a3: Given[_T3],
        a4: Given[_T4],
        a5: Given[_T5],
        a6: Given[_T6],
        a7: Given[_T7],
        a8: Given[_T8],
        a9: Given[_T9],
        /,
    ) -> _R: ...
    @overload
    def __call__(self: Call[Callable[_P, _R]], *args: _P.args, **kwargs: _P.kwargs) -> _R: ...

class Remote(Generic[_F_co]):
    """The attribute ``remote`` of a callee: its call, which returns refs of the results."""

    @overload
    def __get__(self: Remote[Callable[_P, Unknown]], instance: Any, owner: Any, /) -> Call[Callable[_P, ObjectRef[Any]]]: ...
    @overload
    def __get__(self: Remote[Callable[_P, Iterator[_Y]]], instance: Any, owner: Any, /) -> Call[Callable[_P, ObjectRefGenerator[_Y]]]: ...
    @overload
    def __get__(
        self: Remote[Callable[_P, AsyncIterator[_Y]]], instance: Any, owner: Any, /
    ) -> Call[Callable[_P, ObjectRefGenerator[_Y]]]: ...
    @overload
    def __get__(self: Remote[Callable[_P, _R]], instance: Any, owner: Any, /) -> Call[Callable[_P, ObjectRef[_R]]]: ...

class SeveralRemote(Generic[_F_co]):
    """The attribute ``remote`` of a callee of several results."""

    def __get__(self: SeveralRemote[Callable[_P, Any]], instance: Any, owner: Any, /) -> Call[Callable[_P, list[ObjectRef[Any]]]]: ...

class Callee(Generic[_F_co]):
    """What is called remotely: with the parameters of one callable, for refs of its results."""

    remote: Remote[_F_co]
    def bind(self: Callee[Callable[..., _R]], *args: Any, **kwargs: Any) -> BoundNode[_R]: ...

class RemoteFunction(Callee[_F_co], _RemoteFunction):
    """What `remote` makes of a function: of the same parameters and result."""

    @overload  # type: ignore[override]
    def options(self, *, num_returns: Several, **options: Unpack[TaskOptionsApart]) -> SeveralFunction[_F_co]: ...
    @overload
    def options(self, **options: Unpack[TaskOptions]) -> Self: ...

class SeveralFunction(RemoteFunction[_F_co]):
    """A remote function whose calls give a list of refs."""

    remote: SeveralRemote[_F_co]  # type: ignore[assignment]

class RemoteMethod(Callee[_F_co], _ActorMethod):
    """A method of a handle."""

    @overload  # type: ignore[override]
    def options(self, *, num_returns: Several, **options: Unpack[MethodOptionsApart]) -> SeveralMethod[_F_co]: ...
    @overload
    def options(self, **options: Unpack[MethodOptions]) -> Self: ...

class SeveralMethod(RemoteMethod[_F_co]):
    """A method whose calls give a list of refs."""

    remote: SeveralRemote[_F_co]  # type: ignore[assignment]

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
    retry_delay_s: float | list[float] | tuple[float, ...] | None
    timeout_s: float | None
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
