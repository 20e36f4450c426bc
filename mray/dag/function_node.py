"""Ray's place for FunctionNode."""

from mray._api.dag_node import FunctionNode

__all__ = ["FunctionNode"]
