"""Ray's module for DAGContext."""

from mray._api.dag_context import DAGContext

__all__ = ["DAGContext"]
