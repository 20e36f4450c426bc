"""Ray's place for `CompiledDAG`."""

from mray._graph.caller.compiled import CompiledDAG

__all__ = ["CompiledDAG"]
