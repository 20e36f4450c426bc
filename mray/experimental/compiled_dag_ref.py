"""Ray's place for `CompiledDAGRef` and `CompiledDAGFuture`."""

from mray._graph.caller.future import CompiledDAGFuture
from mray._graph.caller.ref import CompiledDAGRef

__all__ = ["CompiledDAGFuture", "CompiledDAGRef"]
