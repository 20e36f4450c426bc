"""DAG nodes that call functions, classes, methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from mray._api.actor_handle import ActorHandle
from mray._api.blueprint import ActorMethodSpec
from mray._api.dag_node import (
    BIND_INDEX_KEY,
    IS_CLASS_METHOD_OUTPUT_KEY,
    PARENT_CLASS_NODE_KEY,
    PREV_CLASS_METHOD_CALL_KEY,
    DAGNode,
    InputNode,
)
from mray._api.dag_outline import ActorOutline, Outline


# -------------------------------------------------------------------------------------------- functions
class FunctionNode(DAGNode):
    """A call of a remote function."""

    def __init__(self, func_body: Any, func_args: Any, func_kwargs: Any, func_options: Any, other_args_to_resolve: Any = None) -> None:
        self.remote_function = func_body
        super().__init__(func_args, func_kwargs, func_options, other_args_to_resolve)

    def _copy_impl(self, args: Any, kwargs: dict[str, Any], options: dict[str, Any], others: dict[str, Any]) -> FunctionNode:
        return FunctionNode(self.remote_function, args, kwargs, options, others)

    def _execute_impl(self, /, *args: Any, **kwargs: Any) -> Any:
        # The default of max_calls is among the options of a function on a GPU, and is no option of a call.
        own = {"max_calls": self.remote_function.default_options["max_calls"], **self.remote_function.given_options}
        changed = {key: value for key, value in self._bound_options.items() if own.get(key, _UNSET) != value}
        function = self.remote_function.options(**changed) if changed else self.remote_function
        return function.remote(*self._bound_args, **self._bound_kwargs)

    def __dag_outline__(self) -> Outline:
        return super().__dag_outline__()._replace(name=str(self.remote_function.__name__))

    def _body_line(self) -> str:
        return str(self.remote_function)


# ---------------------------------------------------------------------------------------------- actors
class ClassNode(DAGNode):
    """The creation of an actor."""

    def __init__(self, cls: Any, cls_args: Any, cls_kwargs: Any, cls_options: Any, other_args_to_resolve: Any = None) -> None:
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

    def _execute_impl(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._body.options(**self._bound_options).remote(*self._bound_args, **self._bound_kwargs)

    def _user_class(self) -> Any:
        return self._body.__ray_actor_class__

    def __dag_outline__(self) -> Outline:
        name = self.__actor_outline__().class_name
        return super().__dag_outline__()._replace(name=name, actor=self.__actor_outline__())

    def __actor_outline__(self) -> ActorOutline:
        return ActorOutline(self._stable_uuid, str(self._user_class().__name__), False)

    def __getattr__(self, name: str) -> Any:
        if "_body" not in self.__dict__ or (name.startswith("__") and name.endswith("__")):
            return super().__getattr__(name)
        user_class = self._user_class()
        if name == "bind" and "bind" not in dir(user_class):
            raise AttributeError(f".bind() cannot be used again on {type(self)} ")
        getattr(user_class, name)  # raises AttributeError with Python's text
        return _UnboundMethod(self._bind_next, name, {})

    def _bind_next(self, method_name: str, args: Any, kwargs: dict[str, Any], options: dict[str, Any]) -> ClassMethodNode:
        others = {PARENT_CLASS_NODE_KEY: self, PREV_CLASS_METHOD_CALL_KEY: self._last_call}
        node = self._last_call = ClassMethodNode(method_name, args, kwargs, options, others)
        return node

    def _body_line(self) -> str:
        return str(self._body)


class _UnboundMethod:
    def __init__(self, bind_next: Callable[..., ClassMethodNode], method_name: str, options: dict[str, Any]) -> None:
        self._bind_next = bind_next
        self._method_name = method_name
        self._options = options

    def bind(self, /, *args: Any, **kwargs: Any) -> ClassMethodNode:
        """A DAG node that calls the method after the calls bound before."""
        return self._bind_next(self._method_name, args, kwargs, self._options)

    def options(self, **options: Any) -> _UnboundMethod:
        return _UnboundMethod(self._bind_next, self._method_name, options)

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
        #: An `ActorHandle`, or the `ClassNode` that creates the actor.
        self._parent_class_node: Any = other_args_to_resolve.get(PARENT_CLASS_NODE_KEY)
        #: Among the calls bound to its actor; None for a value, and where the actor does not exist yet.
        self.bind_index: int | None = other_args_to_resolve.get(BIND_INDEX_KEY)
        #: One of several values of a call; the call, and the index of the value; None for a call.
        self.is_class_method_output = bool(other_args_to_resolve.get(IS_CLASS_METHOD_OUTPUT_KEY, False))
        self.class_method_call: Any = method_args[0] if self.is_class_method_output else None
        self.output_idx: int | None = method_args[1] if self.is_class_method_output else None
        super().__init__(method_args, method_kwargs, method_options, other_args_to_resolve)

    def _copy_impl(self, args: Any, kwargs: dict[str, Any], options: dict[str, Any], others: dict[str, Any]) -> ClassMethodNode:
        return ClassMethodNode(self._method_name, args, kwargs, options, others)

    def _execute_impl(self, /, *args: Any, **kwargs: Any) -> Any:
        if self.is_class_method_output:
            assert self.output_idx is not None
            return self._bound_args[0][self.output_idx]
        method = getattr(self._parent_class_node, self._method_name)
        given = {key: value for key, value in self._bound_options.items() if value is not None}
        return (method.options(**given) if given else method).remote(*self._bound_args, **self._bound_kwargs)

    def get_method_name(self) -> str:
        """The method's name; ``return_idx_<i>`` for one of several values."""
        return self._method_name

    def _get_bind_index(self) -> int | None:
        return self.bind_index

    def _turn(self) -> tuple[str, int] | None:
        handle = self.actor_handle
        return None if handle is None or self.is_class_method_output else (handle._id.hex(), self.bind_index or 0)

    def __dag_outline__(self) -> Outline:
        maker = None if self.is_class_method_output else self._parent_class_node
        actor = None if maker is None else maker.__actor_outline__()
        return super().__dag_outline__()._replace(name=self._method_name, actor=actor)

    @property
    def actor_handle(self) -> ActorHandle | None:
        """The called actor; None where it does not exist yet."""
        return self._parent_class_node if isinstance(self._parent_class_node, ActorHandle) else None

    def _get_actor_handle(self) -> ActorHandle | None:
        return self.actor_handle

    @property
    def num_returns(self) -> int:
        if self.is_class_method_output:
            number: int = self.class_method_call.num_returns
            return number
        return int(self._bound_options.get("num_returns") or 1)

    @property
    def is_class_method_call(self) -> bool:
        return not self.is_class_method_output

    def _body_line(self) -> str:
        return f"{self._method_name}()"

    __repr__ = DAGNode.__str__


_UNSET = object()


def next_bind_index(handle: ActorHandle) -> int:
    """The index of one more call among those bound to this handle."""
    index: int = handle.__dict__.get("_ray_dag_bind_index", 0)
    handle.__dict__["_ray_dag_bind_index"] = index + 1
    return index


def bind_method(handle: ActorHandle, spec: ActorMethodSpec, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]) -> Any:
    """``handle.method.bind(...)``: a node, or a tuple of nodes when the method returns several values."""
    try:
        spec.signature.check(args, kwargs)
    except TypeError as error:
        raise TypeError(
            f"{error}. The function `{spec.name}` has a signature `{spec.signature}`, but the given arguments to `bind` doesn't match. "
            f"args: {args}. kwargs: {kwargs}."
        ) from None
    num_returns = options.get("num_returns") or spec.num_returns
    if not isinstance(num_returns, int):
        raise TypeError(
            f"{spec.name} is a generator: its calls return a stream of refs (num_returns={num_returns!r}), which no DAG node can "
            "represent. Bind a method that returns its values."
        )
    others = {PARENT_CLASS_NODE_KEY: handle, PREV_CLASS_METHOD_CALL_KEY: None, BIND_INDEX_KEY: next_bind_index(handle)}
    node = ClassMethodNode(spec.name, args, kwargs, {**options, "num_returns": num_returns}, others)
    if num_returns <= 1:
        return node
    others = {IS_CLASS_METHOD_OUTPUT_KEY: True, PARENT_CLASS_NODE_KEY: handle}
    return tuple(ClassMethodNode(f"return_idx_{output}", (node, output), {}, {}, dict(others)) for output in range(num_returns))
