"""`cloudpickle`, under Ray's name of the module: what pickles functions, classes and what plain pickle cannot."""

from cloudpickle import (
    CloudPickler,
    Pickler,
    dump,
    dumps,
    load,
    loads,
    pickle,
    register_pickle_by_value,
    unregister_pickle_by_value,
)

__all__ = [
    "CloudPickler",
    "Pickler",
    "dump",
    "dumps",
    "load",
    "loads",
    "pickle",
    "register_pickle_by_value",
    "unregister_pickle_by_value",
]
