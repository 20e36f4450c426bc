"""Ray's place for `CompiledDAGRef`."""

from mray._graph.ref import CompiledDAGRef

__all__ = ["CompiledDAGRef"]
