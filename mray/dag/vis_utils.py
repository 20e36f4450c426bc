"""Ray's module for `plot`."""

from mray._picture.plot import Drawing, plot

__all__ = ["plot"]

#: Not public in Ray either, but its documentation shows ``_dag_to_dot(dag).to_string()``.
_dag_to_dot = Drawing
