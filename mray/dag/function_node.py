"""Ray's module for FunctionNode."""

from mray._api.dag_calls import FunctionNode

__all__ = ["FunctionNode"]
