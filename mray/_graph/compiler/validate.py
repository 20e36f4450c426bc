"""Pass: the DAG nodes a user wrote, checked and turned into a `Graph`. Pure.

Programs for Ray match on the texts of its errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mray._api.accelerator_transport import Accelerator
from mray._api.collective_node import CollectiveOperation, CollectiveOutputNode, nodes_of_graph
from mray._api.communicator import Communicator
from mray._api.dag_calls import ClassMethodNode, FunctionNode
from mray._api.dag_node import DAGNode, InputAttributeNode, InputNode, MultiOutputNode
from mray._api.dag_scan import ObjectScanner
from mray._api.type_hint import AutoTransportType, TorchTensorType
from mray._channel.collective_ops import AllGather, AllReduce, Collective, ReduceScatter
from mray._channel.select import CUDA_IPC, NCCL, NO_DRIVER, NO_INPUT
from mray._graph.communicators import AcceleratorGroup, Carrier, CommunicatorCall, NcclGroup, no_gpu_for_collective
from mray._graph.holes import Hole
from mray._graph.plan import ATTRIBUTE, DIRECT, DRIVER, INPUT, ITEM, MIXED, PART, SIGNAL, SPLIT, Argument, Graph, Source, Step, Transfer


@dataclass(frozen=True)
class Validated:
    graph: Graph
    #: Constants among arguments, by endpoint.
    constants: dict[str, list[Any]]
    #: Handles by actor id; retained by the compiled graph.
    handles: dict[str, Any]
    #: Options of function workers, by endpoint.
    workers: dict[str, dict[str, Any]] = field(default_factory=dict)
    #: Indexed by number.
    communicators: tuple[Carrier, ...] = ()


def validate(root: DAGNode, workers: int = 1, default: Communicator | None = None, accelerator: Accelerator | None = None) -> Validated:
    """Raises ValueError or NotImplementedError.

    `workers`: at most, for functions. Tensors for an accelerator's communicator go through `default`, else through that of
    `accelerator`.
    """
    nodes = nodes_of_graph(root)
    _check_kinds(nodes)
    input_node = _only_input(nodes)
    if isinstance(root, (InputNode, InputAttributeNode)):
        raise ValueError("Compiled DAGs must end in a method of an actor or in a MultiOutputNode, not in their input.")
    if input_node is not None:
        _check_unused_attributes(nodes, input_node)
    return _Builder(nodes, root, workers, _Carriers(default, accelerator)).build()


# ------------------------------------------------------------------------------------------- checks
def _check_kinds(nodes: list[DAGNode]) -> None:
    for node in nodes:
        if not isinstance(node, (InputNode, InputAttributeNode, MultiOutputNode, ClassMethodNode, FunctionNode)):
            raise ValueError(f"Found unsupported node of type {type(node)}")
        if isinstance(node, ClassMethodNode) and node.is_class_method_call and node.actor_handle is None:
            raise ValueError("Compiled DAGs can only bind methods to an actor that is already created with Actor.remote()")


def _only_input(nodes: list[DAGNode]) -> InputNode | None:
    inputs = [node for node in nodes if isinstance(node, InputNode)]
    if len(inputs) > 1:
        raise ValueError("More than one InputNode found: each graph has exactly one.")
    return inputs[0] if inputs else None


def _check_unused_attributes(nodes: list[DAGNode], input_node: InputNode) -> None:
    used = {node.key for node in nodes if isinstance(node, InputAttributeNode) and node.__dag_outline__().users}
    declared = list(input_node.input_attribute_nodes)
    unused = [key for key in declared if key not in used]
    if unused:
        raise ValueError(
            f"Compiled Graph expects input to be accessed using all of attributes {', '.join(map(str, declared))}, but "
            f"{', '.join(map(str, unused))} {'is' if len(unused) == 1 else 'are'} unused. "
            "Ensure all input attributes are used and contribute to the computation of the Compiled Graph output."
        )


# ------------------------------------------------------------------------------------------- building
class _Builder:
    def __init__(self, nodes: list[DAGNode], root: DAGNode, workers: int, carriers: _Carriers) -> None:
        self._nodes = nodes
        self._root = root
        self._calls: list[Any] = [node for node in nodes if _is_call(node)]
        self._numbers: dict[Any, int] = {node: number for number, node in enumerate(self._calls)}
        self._places = _Workers(workers)
        self._constants: dict[str, list[Any]] = {DRIVER: []}
        self._handles: dict[str, Any] = {}
        self._carriers = carriers
        #: Collectives through a communicator; a step's group is the index.
        self._meetings: list[CollectiveOperation] = []
        self._positions: set[int] = set()
        self._keyword_names: dict[str, None] = {}
        users = [node for node in nodes if _is_call(node) or isinstance(node, MultiOutputNode)]
        whole = any(isinstance(each, InputNode) for node in users for each in node.__dag_outline__().upstream)
        parts = any(isinstance(node, InputAttributeNode) for node in nodes)
        self._form = MIXED if whole and parts else SPLIT if parts else DIRECT if whole else SIGNAL

    def build(self) -> Validated:
        steps = tuple(self._step(number, node) for number, node in enumerate(self._calls))
        root = self._root
        returns_list = isinstance(root, MultiOutputNode)
        outputs = tuple(self._output(output) for output in (root.get_args() if returns_list else [root]))
        used = {source.step for step in steps for source in step.sources} | {source.step for output in outputs for source in output.sources}
        graph = Graph(
            steps=steps,
            outputs=outputs,
            returns_list=returns_list,
            positional=1 if self._form == DIRECT else max(self._positions, default=-1) + 1,
            keywords=tuple(self._keyword_names),
            form=self._form,
            leaves=tuple(Source(step.index) for step in steps if step.index not in used),
            transfers=self._transfers(),
        )
        return Validated(graph, self._constants, self._handles, self._places.options, tuple(self._carriers.used))

    # -------------------------------------------------------------------------------- steps
    def _step(self, number: int, node: Any) -> Step:
        if isinstance(node, FunctionNode):
            function = node.remote_function
            actor = self._places.place(number, node.get_options(), self._function_sources(node))
            constant = self._constant(actor, function.function)
            return Step(number, actor, function.name, number, *self._arguments(actor, node.get_args(), node), 1, constant)
        handle = node.actor_handle
        actor = handle.__actor_outline__().key
        self._handles[actor] = handle
        self._constants.setdefault(actor, [])
        bind_index = node.bind_index or 0
        if isinstance(node, CollectiveOutputNode):
            args, constant, group = self._collective(actor, node)
        else:
            args, constant, group = node.get_args(), -1, -1
        arguments = self._arguments(actor, args, node)
        return Step(number, actor, node.get_method_name(), bind_index, *arguments, node.num_returns, constant, group)

    def _arguments(self, actor: str, args: Any, node: DAGNode) -> tuple[tuple[Argument, ...], tuple[tuple[str, Argument], ...]]:
        keywords = tuple((word, self._argument(actor, value)) for word, value in node.get_kwargs().items())
        return tuple(self._argument(actor, value) for value in args), keywords

    def _collective(self, actor: str, node: CollectiveOutputNode) -> tuple[Any, int, int]:
        """(arguments, called constant, group). Without a communicator the tensors of all actors travel along ordinary edges, and each actor
        computes its share without blocking.
        """
        operation = node.collective_op
        assert operation is not None
        members = operation.actor_handles
        rank = next(number for number, handle in enumerate(members) if handle.__actor_outline__().key == actor)
        collective = _collective(operation, rank)
        carrier: Carrier | None = self._carriers.choose(operation.type_hint, members)
        if carrier is None and operation.type_hint.mechanism == NCCL:
            if not any(handle.__actor_options__.get("num_gpus") for handle in members):
                raise ValueError(no_gpu_for_collective(members))
            carrier = self._carriers.nccl(members)
        if carrier is None:
            everybody = [column[number] for number in range(len(members)) for column in operation.inputs]
            return everybody, self._constant(actor, collective), -1
        number = self._carriers.use(carrier, members, node)
        if operation not in self._meetings:
            self._meetings.append(operation)
        call = CommunicatorCall(number, collective)
        return node.get_args(), self._constant(actor, call), self._meetings.index(operation)

    def _function_sources(self, node: DAGNode) -> list[int]:
        return [self._numbers[each] for each in node.__dag_outline__().upstream if isinstance(each, FunctionNode)]

    def _constant(self, actor: str, value: Any) -> int:
        constants = self._constants.setdefault(actor, [])
        constants.append(value)
        return len(constants) - 1

    # -------------------------------------------------------------------------------- arguments
    def _argument(self, actor: str, value: Any) -> Argument:
        if isinstance(value, InputNode):
            return Argument(INPUT)
        if isinstance(value, InputAttributeNode):
            return self._part(value)
        if isinstance(value, DAGNode):
            return Argument(self._source(value))
        scanner = ObjectScanner(DAGNode)
        inside = scanner.find_nodes(value)
        if not inside:
            return Argument(None, constant=self._constant(actor, value))
        template = scanner.replace_nodes({node: Hole(number) for number, node in enumerate(inside)})
        return Argument(None, constant=self._constant(actor, template), nested=tuple(self._argument(actor, node) for node in inside))

    def _part(self, node: InputAttributeNode) -> Argument:
        key = node.key
        if isinstance(key, int):
            self._positions.add(key)
        else:
            self._keyword_names[key] = None
        if self._form == SPLIT:
            return Argument(INPUT, key, by=PART)
        return Argument(INPUT, key, by=ATTRIBUTE if node.accessor_method == "__getattr__" else ITEM)

    def _source(self, node: Any) -> Source:
        if isinstance(node, ClassMethodNode) and node.is_class_method_output:
            assert node.output_idx is not None
            return Source(self._numbers[node.class_method_call], node.output_idx)
        if node not in self._numbers:
            raise ValueError(f"{type(node).__name__} cannot be an argument in a compiled DAG.")
        return Source(self._numbers[node])

    def _output(self, node: Any) -> Argument:
        if not isinstance(node, DAGNode):
            raise ValueError(f"MultiOutputNode takes DAG nodes only, got {type(node)}.")
        return self._argument(DRIVER, node)

    # -------------------------------------------------------------------------------- ends and edges
    def _transfers(self) -> dict[Source, Transfer]:
        found = {}
        for node in self._nodes:
            hint = node.type_hint
            if isinstance(hint, (TorchTensorType, AutoTransportType)) and not isinstance(node, (MultiOutputNode, CollectiveOutputNode)):
                source = INPUT if isinstance(node, (InputNode, InputAttributeNode)) else self._source(node)
                found[source] = self._transfer(node, hint)
        return found

    def _transfer(self, node: Any, hint: TorchTensorType | AutoTransportType) -> Transfer:
        number = -1
        transport = "auto"
        if isinstance(hint, TorchTensorType):
            transport = hint.mechanism or hint.transport
            if self._carriers.carries(hint):
                if isinstance(node, (InputNode, InputAttributeNode)):
                    raise ValueError(NO_INPUT)
                actors = [node.actor_handle, *_reading_actors(node)]
                carrier = self._carriers.choose(hint, actors)
                assert carrier is not None
                number = self._carriers.use(carrier, actors, node)
        return Transfer(transport, str(hint.device), hint.static_shape, hint.direct_return, number)


class _Carriers:
    """Communicators chosen by hints; `mray._graph.compiler.resolve` adds those that edges need."""

    def __init__(self, default: Communicator | None, accelerator: Accelerator | None) -> None:
        self._default = default
        self._accelerator = accelerator
        self._made: dict[frozenset[Any], AcceleratorGroup] = {}
        self._nccl: dict[frozenset[Any], NcclGroup] = {}
        #: Indexed by number.
        self.used: list[Carrier] = []

    def carries(self, hint: TorchTensorType) -> bool:
        if hint.get_custom_communicator() is not None:
            return True
        return hint.requires_accelerator() and hint.mechanism != CUDA_IPC and not (self._default is None and self._accelerator is None)

    def choose(self, hint: TorchTensorType, actors: Sequence[Any]) -> Communicator | AcceleratorGroup | None:
        if not self.carries(hint):
            return None
        demanded = hint.get_custom_communicator()
        if demanded is not None:
            return demanded
        if self._default is not None or self._accelerator is None:
            return self._default
        group = frozenset(actors)
        if group not in self._made:
            self._made[group] = AcceleratorGroup(self._accelerator, list(dict.fromkeys(actors)))
        return self._made[group]

    def nccl(self, actors: Sequence[Any]) -> NcclGroup:
        group = frozenset(actors)
        if group not in self._nccl:
            members = list(dict.fromkeys(actors))
            self._nccl[group] = NcclGroup([handle.__actor_outline__().key for handle in members], members)
        return self._nccl[group]

    def use(self, carrier: Carrier, actors: Sequence[Any], node: DAGNode) -> int:
        """Raises ValueError when one of the actors is no member."""
        handles = carrier.get_actor_handles()
        if not set(actors) <= set(handles):
            raise ValueError(
                f"The passed-in communicator must include all of the actors used in the communication of {node}. The passed-in "
                f"communicator has actors {handles}, but the actors of the communication are {list(actors)}."
            )
        if not any(each is carrier for each in self.used):
            self.used.append(carrier)
        return next(number for number, each in enumerate(self.used) if each is carrier)


def _collective(operation: CollectiveOperation, rank: int) -> Collective:
    width = len(operation.inputs)
    reduction = operation.op.reduction
    if reduction is None:
        return AllGather(width)
    return AllReduce(reduction, width) if operation.op.name == "allreduce" else ReduceScatter(reduction, rank, width)


def _reading_actors(node: DAGNode) -> list[Any]:
    """Actors that read a result. ValueError when the driver reads it."""
    found = []
    for user in node.__dag_outline__().users:
        handle = user.actor_handle if isinstance(user, ClassMethodNode) else None
        if handle is None:
            raise ValueError(NO_DRIVER)
        found.append(handle)
    if not found:
        raise ValueError(NO_DRIVER)
    return found


def _is_call(node: DAGNode) -> bool:
    return isinstance(node, FunctionNode) or (isinstance(node, ClassMethodNode) and node.is_class_method_call)


class _Workers:
    """A function that uses the last result of a worker runs there."""

    def __init__(self, most: int) -> None:
        self._most = most
        #: Worker options by endpoint.
        self.options: dict[str, dict[str, Any]] = {}
        #: Endpoint -> the functions it runs.
        self._steps: dict[str, list[int]] = {}

    def place(self, step: int, options: dict[str, Any], upstream: list[int]) -> str:
        """`upstream`: the functions whose results it uses."""
        alike = [endpoint for endpoint, given in self.options.items() if given == options]
        chosen = next((endpoint for endpoint in alike if self._steps[endpoint][-1] in upstream), None)
        if chosen is None and alike and len(self.options) >= self._most:
            chosen = min(alike, key=lambda endpoint: len(self._steps[endpoint]))
        if chosen is None:
            chosen = f"function-{len(self.options)}"
            self.options[chosen] = options
        self._steps.setdefault(chosen, []).append(step)
        return chosen
