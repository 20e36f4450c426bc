"""Ray's place for `CompiledDAG`."""

from mray._graph.compiled import CompiledDAG

__all__ = ["CompiledDAG"]
