"""Ray's module for `CompiledDAG`."""

from mray._inside.graphs import CompiledDAG

__all__ = ["CompiledDAG"]
