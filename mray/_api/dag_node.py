"""The graph a user writes with ``bind``: DAG nodes.

A node can be executed as ordinary calls (`DAGNode.execute`), or compiled by the backend (`DAGNode.experimental_compile`). It knows no
channel and no compiler. Nodes know their users: a bound node without users must be found when the graph is compiled.
"""

from __future__ import annotations

import itertools
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from mray._api.artist import artist
from mray._api.bind_order import BoundCall, order_calls
from mray._api.current import current_backend
from mray._api.dag_outline import Outline
from mray._api.dag_scan import ObjectScanner
from mray._api.type_hint import ChannelOutputType, tensor_transport
from mray._api.type_variables import T_co
from mray._api.typed import CompiledGraph
from mray._common.slow import told_when_slow

T = TypeVar("T")
N = TypeVar("N", bound="DAGNode")

# Under Ray's names.
PARENT_CLASS_NODE_KEY = "parent_class_node"
PREV_CLASS_METHOD_CALL_KEY = "prev_class_method_call"
BIND_INDEX_KEY = "bind_index"
IS_CLASS_METHOD_OUTPUT_KEY = "is_class_method_output"
COLLECTIVE_OPERATION_KEY = "collective_operation"
DAGNODE_TYPE_KEY = "__dag_node_type__"

_IN_CONTEXT_MANAGER = "__in_context_manager__"


class Unique:
    """An object that cannot be copied or pickled; `known_as` is its name in errors."""

    __slots__ = ()
    known_as = ""

    def __copy__(self) -> NoReturn:
        self._refuse("copied")

    def __deepcopy__(self, memo: Any) -> NoReturn:
        self._refuse("deep copied")

    def __reduce__(self) -> NoReturn:
        self._refuse("pickled")

    def _refuse(self, how: str) -> NoReturn:
        raise ValueError(f"{self.known_as or type(self).__name__} cannot be {how}.")


class GraphRef(Unique, ABC, Generic[T_co]):
    """A claim to a result of a compiled graph."""

    __slots__ = ("__weakref__",)
    known_as = "CompiledDAGRef"

    @abstractmethod
    def get(self, timeout: float | None = None) -> T_co:
        """The result, once."""

    @abstractmethod
    def get_among(self, refs: Sequence[Any], timeout: float | None, deadline: float | None) -> Any:
        """As `get`, for one of these refs: an error of another is raised as soon as it is known.

        `deadline`: the moment (of `mray._common.clock`) at which `timeout` seconds have passed; None: of this call.
        """

    def put_back(self, value: Any) -> None:
        """Undo `get`, which has returned this value."""

    if TYPE_CHECKING:

        def __await__(self) -> Generator[Any, None, T_co]: ...

    @abstractmethod
    def wait_among(self, refs: Sequence[Any], num_returns: int, timeout: float | None) -> tuple[list[Any], list[Any]]:
        """`mray.wait` for a list that includes this one."""


_numbers = itertools.count()


class DAGNode(ABC, Generic[T_co]):
    """One node of a graph: its arguments, its options and its neighbours."""

    def __init__(self, args: Sequence[Any], kwargs: dict[str, Any], options: dict[str, Any], other_args_to_resolve: dict[str, Any]) -> None:
        import uuid  # noqa: PLC0415  (3 ms, for programs without graphs)

        self._bound_args: Any = args or []
        self._bound_kwargs = kwargs or {}
        self._bound_options = options or {}
        self._bound_other_args_to_resolve = other_args_to_resolve or {}
        #: Shared with copies.
        self._stable_uuid = uuid.uuid4().hex
        #: Ascending: a node's arguments have smaller numbers.
        self._created = next(_numbers)
        #: Results by stable uuid.
        self.cache_from_last_execute: dict[str, Any] = {}
        #: Shared with copies.
        self._type_hint = ChannelOutputType()
        #: The compiled graph that ends in this very node.
        self._compiled: weakref.ref[Any] | None = None
        self._downstream_nodes: list[DAGNode] = []
        self._upstream_nodes = self._get_all_child_nodes()
        for upstream in self._upstream_nodes:
            DAGNode._note_user(upstream, self)

    def _note_user(self, user: DAGNode) -> None:
        self._downstream_nodes.append(user)

    # ------------------------------------------------------------------------------------ looking
    def get_args(self) -> Any:
        """The positional arguments."""
        return self._bound_args

    def get_kwargs(self) -> dict[str, Any]:
        """The keyword arguments."""
        return dict(self._bound_kwargs)

    def get_options(self) -> dict[str, Any]:
        """The options of the call."""
        return dict(self._bound_options)

    def get_other_args_to_resolve(self) -> dict[str, Any]:
        """Further parts of the node that may be DAG nodes."""
        return dict(self._bound_other_args_to_resolve)

    def get_stable_uuid(self) -> str:
        """An id that copies of the node share."""
        return self._stable_uuid

    def _get_toplevel_child_nodes(self) -> list[DAGNode]:
        """DAG nodes that are arguments themselves."""
        values = [*self._bound_args, *self._bound_kwargs.values(), *self._bound_other_args_to_resolve.values()]
        return list(dict.fromkeys(value for value in values if isinstance(value, DAGNode)))

    def _get_all_child_nodes(self) -> list[DAGNode]:
        """DAG nodes among the arguments, also inside containers."""
        return find_nodes([self._bound_args, self._bound_kwargs, self._bound_other_args_to_resolve])

    def connected(self) -> Iterator[DAGNode]:
        """Every node that is connected with this one, in any direction; this one first."""
        seen = {self}
        queue: list[DAGNode] = [self]
        for node in queue:
            yield node
            for neighbour in DAGNode._neighbours(node):
                if neighbour not in seen:
                    seen.add(neighbour)
                    queue.append(neighbour)

    def _neighbours(self) -> list[DAGNode]:
        return [*self._downstream_nodes, *self._upstream_nodes]

    def traverse_and_apply(self, fn: Callable[[DAGNode], T]) -> None:
        """Call `fn` with every connected node."""
        for node in self.connected():
            fn(node)

    # ------------------------------------------------------------------------------------ hinting
    def with_tensor_transport(
        self: N, transport: Any = "auto", device: Any = "default", _static_shape: bool = False, _direct_return: bool = False
    ) -> N:
        """Set how the tensors in the result travel, and on which device they arrive. Returns this node."""
        return self.with_type_hint(tensor_transport(transport, device, _static_shape, _direct_return))

    def with_type_hint(self: N, typ: ChannelOutputType) -> N:
        """Set a hint about the result. Returns this node."""
        self.type_hint = typ
        return self

    @property
    def type_hint(self) -> ChannelOutputType:
        """The hint about the result, and how it travels."""
        return self._type_hint

    @type_hint.setter
    def type_hint(self, typ: ChannelOutputType) -> None:
        if not isinstance(typ, ChannelOutputType):
            raise TypeError(f"A type hint is a ChannelOutputType, such as TorchTensorType, not {type(typ).__name__}.")
        self._type_hint = typ

    # ------------------------------------------------------------------------------------ rebuilding
    def apply_recursive(self, fn: Callable[[DAGNode], T]) -> T:
        """Apply `fn` to every upstream node and this one, arguments first, each node once. Returns the result for this node.

        `fn` gets copies in which DAG nodes among the arguments are replaced by their results.
        """
        remembering = fn if isinstance(fn, _Remembering) else _Remembering(fn)
        if self._stable_uuid not in remembering.cache:
            remembering(self._apply_and_replace_all_child_nodes(lambda node: node.apply_recursive(remembering)))
        result: T = remembering.cache[self._stable_uuid]
        return result

    def _apply_and_replace_all_child_nodes(self, fn: Callable[[DAGNode], Any]) -> DAGNode:
        scanner = ObjectScanner(DAGNode)
        found = scanner.find_nodes([self._bound_args, self._bound_kwargs, self._bound_other_args_to_resolve])
        args, kwargs, others = scanner.replace_nodes({node: fn(node) for node in found})
        return self._copy(args, kwargs, self.get_options(), others)

    def apply_functional(self, source_input_list: Any, predicate_fn: Callable[[DAGNode], bool], apply_fn: Callable[[DAGNode], Any]) -> Any:
        """`source_input_list` with `apply_fn` applied to those DAG nodes in it that `predicate_fn` accepts."""
        scanner = ObjectScanner(DAGNode)
        return scanner.replace_nodes(
            {node: apply_fn(node) if predicate_fn(node) else node for node in scanner.find_nodes(source_input_list)}
        )

    def _copy(self, args: Any, kwargs: dict[str, Any], options: dict[str, Any], others: dict[str, Any]) -> DAGNode:
        copied: DAGNode = self._copy_impl(args, kwargs, options, others)
        copied._stable_uuid = self._stable_uuid
        copied._type_hint = self._type_hint
        return copied

    @abstractmethod
    def _copy_impl(self, args: Any, kwargs: dict[str, Any], options: dict[str, Any], others: dict[str, Any]) -> DAGNode:
        """A node like this one with other arguments."""

    # ------------------------------------------------------------------------------------ executing
    def execute(self, /, *args: Any, _ray_cache_refs: bool = False, **kwargs: Any) -> Any:
        """Run the graph once as ordinary tasks and actor calls; returns the ref (or handle) of this node immediately.

        The arguments are the graph's input. With `_ray_cache_refs`, `cache_from_last_execute` holds what each node returned.
        """

        def run(node: DAGNode) -> Any:
            return node._execute_impl(*args, **kwargs)

        executor = _Remembering(run)
        for node in self._calls_in_order():
            node.apply_recursive(executor)
        result = self.apply_recursive(executor)
        if _ray_cache_refs:
            self.cache_from_last_execute = executor.cache
        return result

    def _upstream_first(self) -> list[DAGNode]:
        found: dict[DAGNode, None] = {self: None}
        stack: list[DAGNode] = [self]
        while stack:
            last: DAGNode = stack.pop()
            new = [node for node in last._upstream_nodes if node not in found]
            found.update(dict.fromkeys(new))
            stack.extend(new)

        def age(node: DAGNode) -> int:
            return node._created

        return sorted(found, key=age)

    def _calls_in_order(self) -> list[DAGNode]:
        """The upstream calls of methods of existing actors, in the order to make them."""

        def turn_of(node: DAGNode) -> tuple[str, int] | None:
            return node._turn()

        def needs_of(node: DAGNode) -> set[int]:
            return set().union(*[{places[each]} if each in places else needs[each] for each in node._upstream_nodes])

        nodes = self._upstream_first()
        turns = [(node, turn) for node in nodes if (turn := turn_of(node)) is not None]
        if len(turns) < 2:
            return []
        places = {node: place for place, (node, _turn) in enumerate(turns)}
        needs: dict[DAGNode, set[int]] = {}
        for node in nodes:
            needs[node] = needs_of(node)
        bound = [BoundCall(actor, bind_index, needs[node]) for node, (actor, bind_index) in turns]
        return [turns[place][0] for place in order_calls(bound)]

    def _turn(self) -> tuple[str, int] | None:
        """The actor and the index among its calls, if this is the call of a method of an existing actor."""
        return None

    @abstractmethod
    def _execute_impl(self, /, *args: Any, **kwargs: Any) -> Any:
        """Run this node, whose arguments are values and refs by now; the parameters here are the graph's input."""

    def clear_cache(self) -> None:
        """Forget what the last `execute` has cached."""
        self.cache_from_last_execute = {}

    def experimental_compile(
        self,
        _submit_timeout: float | None = None,
        _buffer_size_bytes: int | None = None,
        enable_asyncio: bool = False,
        _max_inflight_executions: int | None = None,
        _max_buffered_results: int | None = None,
        _overlap_gpu_communication: bool | None = None,
        _default_communicator: Any = "create",
        _when_full: str = "raise",
    ) -> CompiledGraph[GraphRef[T_co]]:
        """Compile the graph that ends here: its actors wait for inputs in loops, and `execute` takes microseconds.

        `_max_inflight_executions` bounds the executions whose results have not been read (10), `_max_buffered_results` the results that
        are buffered for a later `get` (1000). With ``_when_full="wait"`` one execution too many waits (without limit, or
        `_submit_timeout`) instead of raising RayCgraphCapacityExceeded: it buffers the oldest result when that is ready, and when the
        buffer is full it waits for another thread or coroutine to get one. With `enable_asyncio`, `execute_async` executes, and results
        are awaited. Raises ValueError or NotImplementedError when the graph cannot be compiled.
        """
        if self.is_cgraph_output_node:
            raise ValueError(
                "It is not allowed to call `experimental_compile` on the same DAG object multiple times. Please reuse the existing "
                "compiled DAG, tear it down first, or create a new one."
            )
        with told_when_slow("Compiling the graph"):
            compiled: CompiledGraph[GraphRef[T_co]] = current_backend().compile_graph(
                self,
                submit_timeout=_submit_timeout,
                buffer_size_bytes=_buffer_size_bytes,
                enable_asyncio=enable_asyncio,
                max_inflight_executions=_max_inflight_executions,
                max_buffered_results=_max_buffered_results,
                overlap_gpu_communication=_overlap_gpu_communication,
                default_communicator=_default_communicator,
                when_full=_when_full,
            )
        self._compiled = weakref.ref(compiled)
        return compiled

    @property
    def is_cgraph_output_node(self) -> bool:
        """Whether a compiled graph that ends in this very node is alive."""
        compiled = None if self._compiled is None else self._compiled()
        return compiled is not None and not compiled.is_teardown

    # ------------------------------------------------------------------------------------ looks
    def visualize(self, filename: str = "dag", format: str = "png", view: bool = False) -> str:
        """Draw the graph that ends here into ``filename.<format>``, beside its DOT text in `filename`; returns the text.

        ``"svg"``, ``"html"``, ``"mermaid"``, ``"dot"`` and ``"ascii"`` need nothing, all other formats the program ``dot``.
        """
        return artist().visualize_dag(self, filename, format, view)

    def _repr_svg_(self) -> str:
        return artist().dag_svg(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"image/svg+xml": self._repr_svg_(), "text/plain": repr(self)}

    def __dag_outline__(self) -> Outline:
        arguments = find_nodes([self._bound_args, self._bound_kwargs])
        users = tuple(self._downstream_nodes)
        return Outline(type(self).__name__, tuple(self._upstream_nodes), tuple(arguments), self._created, self._type_hint, users)

    def _body_line(self) -> str:
        return type(self).__name__

    def __str__(self) -> str:
        lines = [f"({type(self).__name__}, {self._stable_uuid})("]
        lines.append(f"    body={self._body_line()}")
        lines.append(f"    args={_listed(self._bound_args)}")
        lines.append(f"    kwargs={_listed(f'{key}: {value}' for key, value in self._bound_kwargs.items())}")
        lines.append(f"    options={_listed(f'{key}: {value}' for key, value in self._bound_options.items() if value)}")
        lines.append(")")
        return "\n".join(lines)

    def __getattr__(self, name: str) -> Any:
        if name == "bind":
            raise AttributeError(f".bind() cannot be used again on {type(self)} ")
        if name == "remote":
            raise AttributeError(f".remote() cannot be used on {type(self)}. To execute the task graph for this node, use .execute().")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_compiled": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


class _Remembering:
    """A function applied to each node once, copies included."""

    def __init__(self, fn: Callable[[DAGNode], Any]) -> None:
        self._fn = fn
        self._input: str | None = None
        self.cache: dict[str, Any] = {}

    def __call__(self, node: DAGNode) -> Any:
        uuid = node.get_stable_uuid()
        if uuid not in self.cache:
            self.cache[uuid] = self._fn(node)
        if isinstance(node, InputNode):
            if self._input is not None and self._input != uuid:
                raise AssertionError("Each DAG should only have one unique InputNode.")
            self._input = uuid
        return self.cache[uuid]


def find_nodes(value: Any) -> list[DAGNode]:
    """The distinct DAG nodes in a value."""
    return ObjectScanner(DAGNode).find_nodes(value)


def _listed(values: Any) -> str:
    lines = [line for value in values for line in str(value).split("\n")]
    return "[]" if not lines else "[\n" + "\n".join(f"        {line}" for line in lines) + "\n    ]"


# ---------------------------------------------------------------------------------------------- input
class InputNode(DAGNode):
    """The graph's input: the arguments of `execute`. One per graph, used as a context manager.

    ``inp`` is the single argument, ``inp[0]`` a positional argument and ``inp.x`` or ``inp["x"]`` a keyword argument; when `execute` is
    given only one value, these index that value.
    """

    def __init__(self, *args: Any, input_type: Any = None, _other_args_to_resolve: dict[str, Any] | None = None, **kwargs: Any) -> None:
        if args or kwargs:
            raise ValueError("InputNode should not take any args or kwargs.")
        self.input_attribute_nodes: dict[int | str, InputAttributeNode] = {}
        self.input_type = input_type
        super().__init__([], {}, {}, _other_args_to_resolve if _other_args_to_resolve is not None else {})

    def _copy_impl(self, args: Any, kwargs: dict[str, Any], options: dict[str, Any], others: dict[str, Any]) -> InputNode:
        return InputNode(_other_args_to_resolve=others)

    def _execute_impl(self, /, *args: Any, **kwargs: Any) -> Any:
        assert self._in_context_manager(), (
            "InputNode is a singleton instance that should be only used in context manager for dag building and execution. "
            "See the docstring of class InputNode for examples."
        )
        if len(args) == 1 and not kwargs:
            return args[0]
        return DAGInputData(*args, **kwargs)

    def _in_context_manager(self) -> bool:
        return bool(self._bound_other_args_to_resolve.get(_IN_CONTEXT_MANAGER, False))

    def set_context(self, key: str, val: Any) -> None:
        """Store data that copies of the node share."""
        self._bound_other_args_to_resolve[key] = val

    def __enter__(self) -> Any:  # programs bind it, and give the result the same name
        self.set_context(_IN_CONTEXT_MANAGER, True)
        return self

    def __exit__(self, *args: object) -> None:
        pass

    def __getattr__(self, key: str) -> Any:
        # IPython asks everything it shows for such names; as parts of the input they would belong to the graph.
        is_asked_by_ipython = key.startswith(("_ipython_", "_repr_")) and key.endswith("_")
        is_special = key in ("bind", "remote") or (key.startswith("__") and key.endswith("__")) or is_asked_by_ipython
        if is_special or "input_attribute_nodes" not in self.__dict__:
            return super().__getattr__(key)
        return self._attribute(key, "__getattr__")

    def __getitem__(self, key: int | str) -> Any:
        assert isinstance(key, (str, int)), "Please only use int index or str as first-level key to access fields of dag input."
        return self._attribute(key, "__getitem__")

    def _attribute(self, key: int | str, accessor: str) -> InputAttributeNode:
        if key not in self.input_attribute_nodes:
            self.input_attribute_nodes[key] = InputAttributeNode(self, key, accessor)
        return self.input_attribute_nodes[key]

    def _body_line(self) -> str:
        return "__InputNode__"


class InputAttributeNode(DAGNode):
    """A part of the graph's input."""

    def __init__(self, dag_input_node: Any, key: int | str, accessor_method: str, input_type: Any = None) -> None:
        #: The whole input; position or name; ``"__getitem__"`` or ``"__getattr__"``.
        self.input_node: InputNode = dag_input_node
        self.key = key
        self.accessor_method = accessor_method
        super().__init__([], {}, {}, {"dag_input_node": dag_input_node, "key": key, "accessor_method": accessor_method})

    def _copy_impl(self, args: Any, kwargs: dict[str, Any], options: dict[str, Any], others: dict[str, Any]) -> InputAttributeNode:
        return InputAttributeNode(others["dag_input_node"], others["key"], others["accessor_method"])

    def _execute_impl(self, /, *args: Any, **kwargs: Any) -> Any:
        given = self.input_node
        if isinstance(given, DAGInputData) or self.accessor_method == "__getitem__":
            return given[self.key]
        return getattr(given, str(self.key))

    def __dag_outline__(self) -> Outline:
        outline = super().__dag_outline__()
        return outline._replace(arguments=outline.upstream)

    def _body_line(self) -> str:
        return f'["{self.key}"]'


class DAGInputData:
    """Several arguments of `execute` as one value: indexed by position or name."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._args = list(args)
        self._kwargs = kwargs

    def __getitem__(self, key: int | str) -> Any:
        if isinstance(key, int):
            return self._args[key]
        if isinstance(key, str):
            return self._kwargs[key]
        raise ValueError("Please only use int index or str as first-level key to access fields of dag input.")


# --------------------------------------------------------------------------------------------- output
class MultiOutputNode(DAGNode):
    """The end of a graph with several outputs."""

    def __init__(self, args: list[Any] | tuple[Any, ...], other_args_to_resolve: dict[str, Any] | None = None) -> None:
        if isinstance(args, tuple):
            args = list(args)
        if not isinstance(args, list):
            raise ValueError(f"Invalid input type for `args`, {type(args)}.")
        super().__init__(args, {}, {}, other_args_to_resolve or {})

    if TYPE_CHECKING:

        def experimental_compile(  # type: ignore[override]
            self, *_options: Any, enable_asyncio: bool = False, **options: Any
        ) -> CompiledGraph[list[GraphRef[Any]]]: ...

    def _copy_impl(self, args: Any, kwargs: dict[str, Any], options: dict[str, Any], others: dict[str, Any]) -> MultiOutputNode:
        return MultiOutputNode(args, others)

    def _execute_impl(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._bound_args

    def _body_line(self) -> str:
        return "__MultiOutputNode__"
