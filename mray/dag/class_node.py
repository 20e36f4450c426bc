"""Ray's module for ClassMethodNode, ClassNode."""

from mray._api.dag_calls import ClassMethodNode, ClassNode

__all__ = ["ClassMethodNode", "ClassNode"]
