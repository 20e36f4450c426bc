"""Ray's module for MultiOutputNode."""

from mray._api.dag_node import MultiOutputNode

__all__ = ["MultiOutputNode"]
