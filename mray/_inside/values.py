"""Values and how they travel.

====================  ==================================================================================================
PLAIN_TYPES           The types whose values any pickler can pickle.
Serialized            A serialized value.
UNPICKLABLE           The errors of a value that cannot be pickled.
arrow_reducers        Return how tables of pyarrow are pickled.
dumps                 Pickle a value with cloudpickle.
is_plain              Whether the C pickler can pickle a value.
serialization_error   Return the error of a value that cannot be pickled, which names the culprit.
serialize             Serialize a value for another process.
====================  ==================================================================================================
"""

from mray._objects.remote_error import UNPICKLABLE, serialization_error
from mray._objects.serializer import PLAIN_TYPES, Serialized, dumps, is_plain, serialize
from mray._objects.tables import arrow_reducers

__all__ = ["PLAIN_TYPES", "UNPICKLABLE", "Serialized", "arrow_reducers", "dumps", "is_plain", "serialization_error", "serialize"]
