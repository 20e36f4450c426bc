"""Ray's module for `CompiledDAGRef` and `CompiledDAGFuture`."""

from mray._inside.graphs import CompiledDAGFuture, CompiledDAGRef

__all__ = ["CompiledDAGFuture", "CompiledDAGRef"]
