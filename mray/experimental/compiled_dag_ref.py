"""Ray's place for `CompiledDAGRef` and `CompiledDAGFuture`."""

from mray._graph.future import CompiledDAGFuture
from mray._graph.ref import CompiledDAGRef

__all__ = ["CompiledDAGFuture", "CompiledDAGRef"]
