"""Languages other than Python, under Ray's name of the module: none is supported."""

from mray._common.language import Language, java_actor_class, java_function

__all__ = ["Language", "java_actor_class", "java_function"]
