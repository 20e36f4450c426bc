"""Translation of a user's graph to Ray's DAG nodes.

Every node connected with the root is translated, in the order of binding, so that Ray itself refuses invalid nodes and connections.
Features that only mray has are refused here, by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ray import dag as ray_dag
from ray.experimental.channel.auto_transport_type import AutoTransportType as RayAutoType
from ray.experimental.channel.torch_tensor_type import TorchTensorType as RayTensorType
from ray.experimental.util.types import Device as RayDevice
from ray.experimental.util.types import ReduceOp as RayReduceOp

from mray._api.actor_handle import ActorHandle
from mray._api.collective_node import CollectiveOperation, CollectiveOutputNode, nodes_of_graph
from mray._api.communicator import Communicator
from mray._api.dag_calls import ClassMethodNode, ClassNode, FunctionNode
from mray._api.dag_node import DAGNode, InputAttributeNode, InputNode, MultiOutputNode
from mray._api.dag_scan import ObjectScanner
from mray._api.object_ref import ObjectRef
from mray._api.type_hint import AutoTransportType, ChannelOutputType, TorchTensorType
from mray._backends.ray.values import rays_own

#: Mechanisms that Ray's hints understand.
_MECHANISMS = {"nccl": RayTensorType.ACCELERATOR, "shm": RayTensorType.AUTO}


class Translation:
    """`function` returns Ray's remote function, `value` the value of a ref, `communicator` Ray's communicator for a user's."""

    def __init__(
        self,
        *,
        function: Callable[[Any, dict[str, Any]], Any],
        value: Callable[[ObjectRef], Any],
        communicator: Callable[[Communicator], Any],
    ) -> None:
        self._function = function
        self._value = value
        self._communicator = communicator
        self._made: dict[DAGNode, Any] = {}
        #: One for each actor, since Ray's handle counts the order in which methods are bound.
        self.actors: dict[ActorHandle, Any] = {}

    def of(self, root: DAGNode) -> Any:
        """Ray's node for `root`. Raises the errors of Ray's `bind`, and ValueError for a feature that only mray has."""
        for node in nodes_of_graph(root):
            if node not in self._made:
                self._make(node)
                self._hint(node)
        return self._made[root]

    # ------------------------------------------------------------------------------------ nodes
    def _make(self, node: DAGNode) -> None:
        if isinstance(node, CollectiveOutputNode) and node.is_class_method_call:
            assert node.collective_op is not None
            self._meet(node.collective_op)
        elif isinstance(node, ClassMethodNode):
            self._call(node)
        elif isinstance(node, InputNode):
            with ray_dag.InputNode() as self._made[node]:
                pass
        elif isinstance(node, InputAttributeNode):
            given = self._made[node.input_node]
            self._made[node] = given[node.key] if node.accessor_method == "__getitem__" else getattr(given, str(node.key))
        elif isinstance(node, MultiOutputNode):
            self._made[node] = ray_dag.MultiOutputNode(self._changed(node.get_args()))
        elif isinstance(node, FunctionNode):
            args, kwargs = self._arguments(node)
            self._made[node] = self._function(node.remote_function, node.get_options()).bind(*args, **kwargs)
        else:
            what = "makes an actor" if isinstance(node, ClassNode) else f"is a {type(node).__name__}"
            raise ValueError(f"Compiled DAGs can only bind methods to an actor that is already created with Actor.remote(): {node} {what}")

    def _call(self, node: ClassMethodNode) -> None:
        if node.is_class_method_output:
            results = self._made[node.class_method_call]
            assert node.output_idx is not None
            self._made[node] = results[node.output_idx] if isinstance(results, (tuple, list)) else results
            return
        handle = node.actor_handle
        if handle is None:
            raise ValueError("Compiled DAGs can only bind methods to an actor that is already created with Actor.remote()")
        method = getattr(self.actors.setdefault(handle, rays_own(handle)), node.get_method_name())
        args, kwargs = self._arguments(node)
        self._made[node] = method.options(num_returns=node.num_returns).bind(*args, **kwargs)

    def _arguments(self, node: DAGNode) -> tuple[Any, Any]:
        """With values instead of refs: a method of Ray's graph would receive the ref itself."""
        args, kwargs = self._changed([list(node.get_args()), node.get_kwargs()])
        args = [self._value(each) if isinstance(each, ObjectRef) else each for each in args]
        return args, {name: self._value(each) if isinstance(each, ObjectRef) else each for name, each in kwargs.items()}

    def _changed(self, value: Any) -> Any:
        scanner = ObjectScanner(DAGNode)
        return scanner.replace_nodes({node: self._made[node] for node in scanner.find_nodes(value)})

    def _meet(self, meeting: CollectiveOperation) -> None:
        """Create all nodes of a collective operation together, as Ray binds them."""
        columns = [[self._made[node] for node in column] for column in meeting.inputs]
        hint = meeting.type_hint
        from ray.experimental import collective as ray_collective  # noqa: PLC0415  (it needs torch, which graphs without it need not have)

        operator = getattr(ray_collective, meeting.op.name)
        reduction = meeting.op.reduction
        op = {} if reduction is None else {"op": RayReduceOp[reduction.name]}
        transport = meeting.communicator
        carrier = self._transport(hint) if transport is None else self._communicator(transport)
        bound = operator.bind(columns if len(columns) > 1 else columns[0], transport=carrier, **op)
        self._made.update(zip(meeting.nodes, bound, strict=True))

    # ------------------------------------------------------------------------------------ hints
    def _hint(self, node: DAGNode) -> None:
        hint = node.type_hint
        if type(hint) is ChannelOutputType:
            return
        made = self._made[node]
        if isinstance(made, (tuple, list)):
            return  # a call with several return values: each has its own hint
        made.type_hint = self._ray_hint(hint)

    def _ray_hint(self, hint: ChannelOutputType) -> Any:
        if isinstance(hint, AutoTransportType):
            return RayAutoType(RayDevice(hint.device.value), hint.static_shape, hint.direct_return)
        if isinstance(hint, TorchTensorType):
            user = hint.get_custom_communicator()
            transport = self._transport(hint) if user is None else self._communicator(user)
            return RayTensorType(transport, RayDevice(hint.device.value), hint.static_shape, hint.direct_return)
        raise ValueError(f"{type(hint).__name__} is a type hint that Ray does not have: on Ray use with_tensor_transport(), or none.")

    @staticmethod
    def _transport(hint: TorchTensorType) -> str:
        if hint.mechanism is None:
            return hint.transport
        if hint.mechanism not in _MECHANISMS:
            raise ValueError(
                f"Ray's graphs have no transport {hint.mechanism!r}: it is mray's own, between actors of one machine. Ask for 'auto' or "
                "'nccl', or run this part of the graph in a session of mray inside an actor (mray.init(address='local'))."
            )
        return str(_MECHANISMS[hint.mechanism])
