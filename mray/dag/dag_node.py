"""Ray's module for DAGNode."""

from mray._api.dag_node import DAGNode

__all__ = ["DAGNode"]
