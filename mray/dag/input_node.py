"""Ray's module for DAGInputData, InputAttributeNode, InputNode."""

from mray._api.dag_node import DAGInputData, InputAttributeNode, InputNode

__all__ = ["DAGInputData", "InputAttributeNode", "InputNode"]
