"""The graph a user writes with ``bind``: DAG nodes.

In the process that binds. A DAG node says what to call with which arguments, some of which are DAG nodes themselves. It can be executed as
ordinary calls (`DAGNode.execute`), or handed to the backend's compiler (`DAGNode.experimental_compile`). It knows no channel and
no compiler: whoever compiles reads it through the methods here.

Nodes know who uses them, too: what is bound and used nowhere must be found when the graph is compiled.
"""

from __future__ import annotations

import uuid
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn, TypeVar

from mray._api.actor import ActorHandle, ActorMethod
from mray._api.bind_order import BoundCall, order_calls
from mray._api.current import current_backend
from mray._api.dag_scan import ObjectScanner
from mray._api.type_hint import ChannelOutputType, tensor_transport

T = TypeVar("T")
N = TypeVar("N", bound="DAGNode")

# Keys of `get_other_args_to_resolve`, under Ray's names.
PARENT_CLASS_NODE_KEY = "parent_class_node"
PREV_CLASS_METHOD_CALL_KEY = "prev_class_method_call"
BIND_INDEX_KEY = "bind_index"
IS_CLASS_METHOD_OUTPUT_KEY = "is_class_method_output"
COLLECTIVE_OPERATION_KEY = "collective_operation"
DAGNODE_TYPE_KEY = "__dag_node_type__"

_IN_CONTEXT_MANAGER = "__in_context_manager__"


class GraphRef(ABC):
    """A claim to a result of a compiled graph, as `mray.get` knows it."""

    __slots__ = ("__weakref__",)

    @abstractmethod
    def get(self, timeout: float | None = None) -> Any:
        """The result, once."""


class DAGNode(ABC):
    """One node of a graph: its arguments, its options and its neighbours."""

    def __init__(self, args: Sequence[Any], kwargs: dict[str, Any], options: dict[str, Any], other_args_to_resolve: dict[str, Any]) -> None:
        self._bound_args: Any = args or []
        self._bound_kwargs = kwargs or {}
        self._bound_options = options or {}
        self._bound_other_args_to_resolve = other_args_to_resolve or {}
        #: The same in every copy of this node.
        self._stable_uuid = uuid.uuid4().hex
        #: Results of the last `execute` that was asked to keep them, by stable uuid.
        self.cache_from_last_execute: dict[str, Any] = {}
        #: What is known of the values, and how they travel; copies of the node share it.
        self._type_hint = ChannelOutputType()
        #: A weak reference to what `experimental_compile` made of the graph that ends in this very node.
        self._compiled: weakref.ref[Any] | None = None
        #: Whether a positional argument holds a DAG node inside of a container.
        self._args_contain_nested_dag_node = any(not isinstance(arg, DAGNode) and find_nodes(arg) for arg in self._bound_args)
        self._downstream_nodes: list[DAGNode] = []
        self._upstream_nodes = self._get_all_child_nodes()
        for upstream in self._upstream_nodes:
            upstream._downstream_nodes.append(self)

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
        """What else belongs to the node and may be a DAG node."""
        return dict(self._bound_other_args_to_resolve)

    def get_stable_uuid(self) -> str:
        """An id that copies of the node share."""
        return self._stable_uuid

    def _get_toplevel_child_nodes(self) -> list[DAGNode]:
        """DAG nodes that are arguments themselves."""
        values = [*self._bound_args, *self._bound_kwargs.values(), *self._bound_other_args_to_resolve.values()]
        return list(dict.fromkeys(value for value in values if isinstance(value, DAGNode)))

    def _get_all_child_nodes(self) -> list[DAGNode]:
        """DAG nodes among the arguments, also those inside of containers."""
        return find_nodes([self._bound_args, self._bound_kwargs, self._bound_other_args_to_resolve])

    def connected(self) -> Iterator[DAGNode]:
        """Every node that is connected with this one, in any direction; this one first."""
        seen = {self}
        queue: list[DAGNode] = [self]
        for node in queue:
            yield node
            for neighbour in (*node._downstream_nodes, *node._upstream_nodes):
                if neighbour not in seen:
                    seen.add(neighbour)
                    queue.append(neighbour)

    def traverse_and_apply(self, fn: Callable[[DAGNode], T]) -> None:
        """Call `fn` with every connected node."""
        for node in self.connected():
            fn(node)

    def _find_root(self) -> DAGNode:
        """The input of the graph, found upwards."""
        node: DAGNode = self
        while not isinstance(node, InputNode):
            if not node._upstream_nodes:
                raise ValueError(f"No InputNode found in the DAG: when traversing upwards, no upstream node was found for {node}.")
            node = node._upstream_nodes[0]
        return node

    # ------------------------------------------------------------------------------------ hinting
    def with_tensor_transport(
        self: N, transport: Any = "auto", device: Any = "default", _static_shape: bool = False, _direct_return: bool = False
    ) -> N:
        """Say how the tensors in the result travel, and on which device they arrive; see `mray._api.type_hint`. Returns this node."""
        return self.with_type_hint(tensor_transport(transport, device, _static_shape, _direct_return))

    def with_type_hint(self: N, typ: ChannelOutputType) -> N:
        """Say what is known of the result. Returns this node."""
        self.type_hint = typ
        return self

    @property
    def type_hint(self) -> ChannelOutputType:
        """What is known of the result, and how it travels."""
        return self._type_hint

    @type_hint.setter
    def type_hint(self, typ: ChannelOutputType) -> None:
        if not isinstance(typ, ChannelOutputType):
            raise TypeError(f"A type hint is a ChannelOutputType, such as TorchTensorType, not {type(typ).__name__}.")
        self._type_hint = typ

    # ------------------------------------------------------------------------------------ rebuilding
    def apply_recursive(self, fn: Callable[[DAGNode], T]) -> T:
        """Apply `fn` to every node upwards from here, arguments first, each node once; the result for this node.

        `fn` sees copies of the nodes in which DAG nodes among the arguments are replaced by their results.
        """
        remembering = fn if isinstance(fn, _Remembering) else _Remembering(fn)
        if self._stable_uuid not in remembering.cache:
            remembering(self._apply_and_replace_all_child_nodes(lambda node: node.apply_recursive(remembering)))
        result: T = remembering.cache[self._stable_uuid]
        return result

    def _apply_and_replace_all_child_nodes(self, fn: Callable[[DAGNode], Any]) -> DAGNode:
        """A copy of this node with `fn` applied to the DAG nodes among its arguments."""
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
        copied = self._copy_impl(args, kwargs, options, others)
        copied._stable_uuid = self._stable_uuid
        copied._type_hint = self._type_hint
        return copied

    @abstractmethod
    def _copy_impl(self, args: Any, kwargs: dict[str, Any], options: dict[str, Any], others: dict[str, Any]) -> DAGNode:
        """A node like this one with other arguments."""

    # ------------------------------------------------------------------------------------ executing
    def execute(self, *args: Any, _ray_cache_refs: bool = False, **kwargs: Any) -> Any:
        """Run the graph once as ordinary tasks and actor calls; returns the ref (or handle) of this node at once.

        The arguments are the graph's input. With `_ray_cache_refs`, `cache_from_last_execute` holds what each node returned.
        """
        executor = _Remembering(lambda node: node._execute_impl(*args, **kwargs))
        for node in self._calls_in_order():
            node.apply_recursive(executor)
        result = self.apply_recursive(executor)
        if _ray_cache_refs:
            self.cache_from_last_execute = executor.cache
        return result

    def _calls_in_order(self) -> list[DAGNode]:
        """The calls of methods of existing actors upwards from here, in the order to make them."""
        nodes = upstream_first([self])
        calls = [node for node in nodes if isinstance(node, ClassMethodNode) and node._get_actor_handle() and node.is_class_method_call]
        if len(calls) < 2:
            return []
        places = {node: place for place, node in enumerate(calls)}
        needs: dict[DAGNode, set[int]] = {}
        for node in nodes:
            needs[node] = set().union(*[{places[each]} if each in places else needs[each] for each in node._upstream_nodes])
        bound = [BoundCall(node._parent_class_node._id.hex(), node._get_bind_index() or 0, needs[node]) for node in calls]
        return [calls[place] for place in order_calls(bound)]

    @abstractmethod
    def _execute_impl(self, *args: Any, **kwargs: Any) -> Any:
        """Run this node, whose arguments are values and refs by now; the arguments here are the graph's input."""

    def clear_cache(self) -> None:
        """Forget what the last `execute` has kept."""
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
    ) -> Any:
        """Compile the graph that ends here: its actors wait for inputs in loops, and `execute` is a matter of microseconds.

        `_max_inflight_executions` bounds the executions whose results have not been read (10), `_max_buffered_results` the results
        that are kept for a later `get` (1000). Raises ValueError or NotImplementedError when the graph cannot be compiled.
        """
        if self.is_cgraph_output_node:
            raise ValueError(
                "It is not allowed to call `experimental_compile` on the same DAG object multiple times. Please reuse the existing "
                "compiled DAG, tear it down first, or create a new one."
            )
        compiled = current_backend().compile_graph(
            self,
            submit_timeout=_submit_timeout,
            buffer_size_bytes=_buffer_size_bytes,
            enable_asyncio=enable_asyncio,
            max_inflight_executions=_max_inflight_executions,
            max_buffered_results=_max_buffered_results,
            overlap_gpu_communication=_overlap_gpu_communication,
            default_communicator=_default_communicator,
        )
        self._compiled = weakref.ref(compiled)
        return compiled

    @property
    def is_cgraph_output_node(self) -> bool:
        """Whether a compiled graph that ends in this very node is alive."""
        compiled = None if self._compiled is None else self._compiled()
        return compiled is not None and not compiled.is_teardown

    # ------------------------------------------------------------------------------------ looks
    def _body_line(self) -> str:
        """What the node calls, in a word."""
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
    """A function of nodes that is applied to each node once, copies included."""

    def __init__(self, fn: Callable[[DAGNode], Any]) -> None:
        self._fn = fn
        self._input: str | None = None
        self.cache: dict[str, Any] = {}

    def __call__(self, node: DAGNode) -> Any:
        if node._stable_uuid not in self.cache:
            self.cache[node._stable_uuid] = self._fn(node)
        if isinstance(node, InputNode):
            if self._input is not None and self._input != node._stable_uuid:
                raise AssertionError("Each DAG should only have one unique InputNode.")
            self._input = node._stable_uuid
        return self.cache[node._stable_uuid]


def upstream_first(ends: Iterable[DAGNode]) -> list[DAGNode]:
    """These nodes and everything upwards from them, each after what it uses."""
    ordered: dict[DAGNode, None] = {}
    for end in ends:
        stack = [(end, False)]
        while stack:
            node, ready = stack.pop()
            if ready:
                ordered[node] = None
            elif node not in ordered:
                stack.append((node, True))
                stack.extend((upstream, False) for upstream in reversed(node._upstream_nodes))
    return list(ordered)


def find_nodes(value: Any) -> list[DAGNode]:
    """The DAG nodes in a value, each once."""
    return ObjectScanner(DAGNode).find_nodes(value)


def _listed(values: Any) -> str:
    lines = [line for value in values for line in str(value).split("\n")]
    return "[]" if not lines else "[\n" + "\n".join(f"        {line}" for line in lines) + "\n    ]"


# ---------------------------------------------------------------------------------------------- input
class InputNode(DAGNode):
    """The graph's input: what `execute` is called with. One per graph, used as a context manager.

    ``inp`` is the one argument as it is, ``inp[0]`` a positional argument and ``inp.x`` or ``inp["x"]`` a keyword argument; when
    `execute` is given one value only, these index that value.
    """

    def __init__(self, *args: Any, input_type: Any = None, _other_args_to_resolve: dict[str, Any] | None = None, **kwargs: Any) -> None:
        if args or kwargs:
            raise ValueError("InputNode should not take any args or kwargs.")
        self.input_attribute_nodes: dict[int | str, InputAttributeNode] = {}
        self.input_type = input_type
        super().__init__([], {}, {}, _other_args_to_resolve if _other_args_to_resolve is not None else {})

    def _copy_impl(self, args: Any, kwargs: dict[str, Any], options: dict[str, Any], others: dict[str, Any]) -> InputNode:
        return InputNode(_other_args_to_resolve=others)

    def _execute_impl(self, *args: Any, **kwargs: Any) -> Any:
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
        """Remember something that copies of the node know too."""
        self._bound_other_args_to_resolve[key] = val

    def __enter__(self) -> InputNode:
        self.set_context(_IN_CONTEXT_MANAGER, True)
        return self

    def __exit__(self, *args: object) -> None:
        pass

    def __getattr__(self, key: str) -> Any:
        if key in ("bind", "remote") or (key.startswith("__") and key.endswith("__")) or "input_attribute_nodes" not in self.__dict__:
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
        self._dag_input_node = dag_input_node
        self._key = key
        self._accessor_method = accessor_method
        super().__init__([], {}, {}, {"dag_input_node": dag_input_node, "key": key, "accessor_method": accessor_method})

    @property
    def key(self) -> int | str:
        """Position or name."""
        return self._key

    @property
    def accessor_method(self) -> str:
        """``"__getitem__"`` or ``"__getattr__"``."""
        return self._accessor_method

    def _copy_impl(self, args: Any, kwargs: dict[str, Any], options: dict[str, Any], others: dict[str, Any]) -> InputAttributeNode:
        return InputAttributeNode(others["dag_input_node"], others["key"], others["accessor_method"])

    def _execute_impl(self, *args: Any, **kwargs: Any) -> Any:
        given = self._dag_input_node
        if isinstance(given, DAGInputData) or self._accessor_method == "__getitem__":
            return given[self._key]
        return getattr(given, str(self._key))

    def _body_line(self) -> str:
        return f'["{self._key}"]'


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

    def _copy_impl(self, args: Any, kwargs: dict[str, Any], options: dict[str, Any], others: dict[str, Any]) -> MultiOutputNode:
        return MultiOutputNode(args, others)

    def _execute_impl(self, *args: Any, **kwargs: Any) -> Any:
        return self._bound_args

    def _body_line(self) -> str:
        return "__MultiOutputNode__"


# -------------------------------------------------------------------------------------------- functions
class FunctionNode(DAGNode):
    """A call of a remote function."""

    def __init__(self, func_body: Any, func_args: Any, func_kwargs: Any, func_options: Any, other_args_to_resolve: Any = None) -> None:
        #: The `RemoteFunction`.
        self._body = func_body
        super().__init__(func_args, func_kwargs, func_options, other_args_to_resolve)

    @property
    def remote_function(self) -> Any:
        """What is called."""
        return self._body

    def _copy_impl(self, args: Any, kwargs: dict[str, Any], options: dict[str, Any], others: dict[str, Any]) -> FunctionNode:
        return FunctionNode(self._body, args, kwargs, options, others)

    def _execute_impl(self, *args: Any, **kwargs: Any) -> Any:
        changed = {key: value for key, value in self._bound_options.items() if self._body.given_options.get(key, _UNSET) != value}
        function = self._body.options(**changed) if changed else self._body
        return function.remote(*self._bound_args, **self._bound_kwargs)

    def _body_line(self) -> str:
        return str(self._body)


# ---------------------------------------------------------------------------------------------- actors
class ClassNode(DAGNode):
    """The making of an actor."""

    def __init__(self, cls: Any, cls_args: Any, cls_kwargs: Any, cls_options: Any, other_args_to_resolve: Any = None) -> None:
        #: The `ActorClass`.
        self._body = cls
        self._last_call: ClassMethodNode | None = None
        super().__init__(cls_args, cls_kwargs, cls_options, other_args_to_resolve)
        if any(isinstance(node, InputNode) for node in self._get_all_child_nodes()):
            raise ValueError(
                "InputNode handles user dynamic input the DAG, and cannot be used as args, kwargs, or other_args_to_resolve in ClassNode "
                "constructor because it is not available at class construction or binding time."
            )

    def _copy_impl(self, args: Any, kwargs: dict[str, Any], options: dict[str, Any], others: dict[str, Any]) -> ClassNode:
        return ClassNode(self._body, args, kwargs, options, others)

    def _execute_impl(self, *args: Any, **kwargs: Any) -> Any:
        return self._body.options(**self._bound_options).remote(*self._bound_args, **self._bound_kwargs)

    def __getattr__(self, name: str) -> Any:
        if "_body" not in self.__dict__ or (name.startswith("__") and name.endswith("__")):
            return super().__getattr__(name)
        user_class = self._body._blueprint.cls
        if name == "bind" and "bind" not in dir(user_class):
            raise AttributeError(f".bind() cannot be used again on {type(self)} ")
        getattr(user_class, name)  # AttributeError in Python's own words
        return _UnboundMethod(self, name, {})

    def _body_line(self) -> str:
        return str(self._body)


class _UnboundMethod:
    """``node.method`` of a `ClassNode`."""

    def __init__(self, actor: ClassNode, method_name: str, options: dict[str, Any]) -> None:
        self._actor = actor
        self._method_name = method_name
        self._options = options

    def bind(self, *args: Any, **kwargs: Any) -> ClassMethodNode:
        """A DAG node that calls the method after the calls bound before."""
        others = {PARENT_CLASS_NODE_KEY: self._actor, PREV_CLASS_METHOD_CALL_KEY: self._actor._last_call}
        node = ClassMethodNode(self._method_name, args, kwargs, self._options, others)
        self._actor._last_call = node
        return node

    def options(self, **options: Any) -> _UnboundMethod:
        """The method with options."""
        return _UnboundMethod(self._actor, self._method_name, options)

    def __getattr__(self, name: str) -> NoReturn:
        if name == "remote":
            raise AttributeError(".remote() cannot be used on ClassMethodNodes. Use .bind() instead to express an symbolic actor call.")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


class ClassMethodNode(DAGNode):
    """A call of a method of an actor, or one of the several values that such a call returns."""

    def __init__(
        self,
        method_name: str,
        method_args: Any,
        method_kwargs: dict[str, Any],
        method_options: dict[str, Any],
        other_args_to_resolve: dict[str, Any],
    ) -> None:
        self._method_name = method_name
        #: An `ActorHandle`, or the `ClassNode` that makes the actor.
        self._parent_class_node: Any = other_args_to_resolve.get(PARENT_CLASS_NODE_KEY)
        self._bind_index: int | None = other_args_to_resolve.get(BIND_INDEX_KEY)
        self._is_class_method_output = bool(other_args_to_resolve.get(IS_CLASS_METHOD_OUTPUT_KEY, False))
        self._class_method_call: Any = method_args[0] if self._is_class_method_output else None
        self._output_idx: int | None = method_args[1] if self._is_class_method_output else None
        super().__init__(method_args, method_kwargs, method_options, other_args_to_resolve)

    def _copy_impl(self, args: Any, kwargs: dict[str, Any], options: dict[str, Any], others: dict[str, Any]) -> ClassMethodNode:
        return ClassMethodNode(self._method_name, args, kwargs, options, others)

    def _execute_impl(self, *args: Any, **kwargs: Any) -> Any:
        if self._is_class_method_output:
            assert self._output_idx is not None
            return self._bound_args[0][self._output_idx]
        method = getattr(self._parent_class_node, self._method_name)
        given = {key: value for key, value in self._bound_options.items() if value is not None}
        return (method.options(**given) if given else method).remote(*self._bound_args, **self._bound_kwargs)

    def get_method_name(self) -> str:
        """The method's name; ``return_idx_<i>`` for one of several values."""
        return self._method_name

    def _get_bind_index(self) -> int | None:
        return self._bind_index

    def _get_actor_handle(self) -> ActorHandle | None:
        return self._parent_class_node if isinstance(self._parent_class_node, ActorHandle) else None

    @property
    def num_returns(self) -> int:
        """How many values the call returns."""
        if self._is_class_method_output:
            number: int = self._class_method_call.num_returns
            return number
        return int(self._bound_options.get("num_returns") or 1)

    @property
    def is_class_method_call(self) -> bool:
        """Whether this is the call itself."""
        return not self._is_class_method_output

    @property
    def is_class_method_output(self) -> bool:
        """Whether this is one of several values of a call."""
        return self._is_class_method_output

    @property
    def class_method_call(self) -> Any:
        """The call that this is a value of; None for a call."""
        return self._class_method_call

    @property
    def output_idx(self) -> int | None:
        """Which value of the call this is; None for a call."""
        return self._output_idx

    def _body_line(self) -> str:
        return f"{self._method_name}()"

    __repr__ = DAGNode.__str__


_UNSET = object()


def bind_method(method: ActorMethod, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]) -> Any:
    """``handle.method.bind(...)``: a node, or a tuple of nodes when the method returns several values."""
    spec, handle = method._spec, method._handle
    try:
        spec.signature.check(args, kwargs)
    except TypeError as error:
        raise TypeError(
            f"{error}. The function `{spec.name}` has a signature `{spec.signature}`, but the given arguments to `bind` doesn't match. "
            f"args: {args}. kwargs: {kwargs}."
        ) from None
    num_returns = options.get("num_returns") or spec.num_returns
    index = handle.__dict__.get("_ray_dag_bind_index", 0)
    handle.__dict__["_ray_dag_bind_index"] = index + 1
    others = {PARENT_CLASS_NODE_KEY: handle, PREV_CLASS_METHOD_CALL_KEY: None, BIND_INDEX_KEY: index}
    node = ClassMethodNode(spec.name, args, kwargs, {**options, "num_returns": num_returns}, others)
    if not isinstance(num_returns, int) or num_returns <= 1:
        return node
    others = {IS_CLASS_METHOD_OUTPUT_KEY: True, PARENT_CLASS_NODE_KEY: handle}
    return tuple(ClassMethodNode(f"return_idx_{output}", (node, output), {}, {}, dict(others)) for output in range(num_returns))
