"""Ray's module for the scanner that finds DAG nodes in values."""

from mray._api.dag_node import DAGNode
from mray._api.dag_scan import ObjectScanner

__all__ = ["_PyObjScanner"]


class _PyObjScanner(ObjectScanner):
    """An `ObjectScanner`, by default for DAG nodes."""

    def __init__(self, source_type: type | tuple[type, ...] = DAGNode) -> None:
        super().__init__(source_type)
