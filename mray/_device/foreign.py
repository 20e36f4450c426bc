"""Device arrays that are no tensors of the platform: their pickles pass through host memory, and the user is warned once.

Arrays of cupy, JAX and numba, and subclasses of torch's tensors, recognized by ``__cuda_array_interface__``.
"""

from __future__ import annotations

import itertools
import warnings
from typing import Any

from mray._device.device import Platform

#: Items of a container that are examined.
MOST_LOOKED_AT = 16
#: Classes of which this process has warned, or builtin ones.
_known_kinds: set[type] = {int, float, str, bytes, bool, type(None), list, tuple, dict}


def tell_of_foreign(value: Any, platform: Platform, carrier: str) -> None:
    """Warn, once per class, of such arrays in a value; `carrier`: the edge, or another sender."""
    kind = value.__class__
    if kind in (list, tuple, dict):
        items = value.values() if kind is dict else value
        kinds = {item.__class__: item for item in itertools.islice(items, MOST_LOOKED_AT)}
    else:
        kinds = {kind: value}
    for each, item in kinds.items():
        if each not in _known_kinds and not platform.is_tensor(item) and _is_on_device(each, item):
            _known_kinds.add(each)
            warnings.warn(
                f"{carrier} carries a {each.__module__}.{each.__qualname__} of a GPU, which is pickled through host memory. Only "
                "tensors of exactly torch.Tensor stay on the device: send torch.as_tensor(value) or torch.from_dlpack(value).",
                RuntimeWarning,
                stacklevel=2,
            )


def _is_on_device(kind: type, value: Any) -> bool:
    if not hasattr(kind, "__cuda_array_interface__"):
        return False
    try:
        return value.__cuda_array_interface__ is not None
    except Exception:  # on the host; the error depends on the library
        return False
