"""Graphs of calls: what is bound with ``bind`` and executed or compiled. Ray's names, re-exported."""

from mray._api.collective_node import CollectiveOutputNode
from mray._api.dag_calls import ClassMethodNode, ClassNode, FunctionNode
from mray._api.dag_context import DAGContext
from mray._api.dag_node import (
    BIND_INDEX_KEY,
    COLLECTIVE_OPERATION_KEY,
    DAGNODE_TYPE_KEY,
    IS_CLASS_METHOD_OUTPUT_KEY,
    PARENT_CLASS_NODE_KEY,
    PREV_CLASS_METHOD_CALL_KEY,
    DAGInputData,
    DAGNode,
    InputAttributeNode,
    InputNode,
    MultiOutputNode,
)
from mray._api.dag_output import output
from mray._picture.plot import plot

__all__ = [
    "BIND_INDEX_KEY",
    "COLLECTIVE_OPERATION_KEY",
    "DAGNODE_TYPE_KEY",
    "IS_CLASS_METHOD_OUTPUT_KEY",
    "PARENT_CLASS_NODE_KEY",
    "PREV_CLASS_METHOD_CALL_KEY",
    "ClassMethodNode",
    "ClassNode",
    "CollectiveOutputNode",
    "DAGContext",
    "DAGInputData",
    "DAGNode",
    "FunctionNode",
    "InputAttributeNode",
    "InputNode",
    "MultiOutputNode",
    "output",
    "plot",
]
