"""Types for annotations, under Ray's name of the module."""

from mray._api.object_ref import ObjectRef

__all__ = ["ObjectRef"]
