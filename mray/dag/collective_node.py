"""Ray's module for CollectiveOutputNode."""

from mray._api.collective_node import CollectiveOperation as _CollectiveOperation
from mray._api.collective_node import CollectiveOutputNode

__all__ = ["CollectiveOutputNode", "_CollectiveOperation"]
