"""User metrics beside the session's: `Counter`, `Gauge`, `Histogram`.

``mray metrics`` collects the counts of all living processes and prints ``ray_<name>``, as Ray exports it, with the tags, ``WorkerId``
and ``pid`` as labels. On a Ray cluster Ray exports them.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from typing import Any

from mray._api.counterpart import counterpart_of
from mray._common import measured

__all__ = ["Counter", "Gauge", "Histogram"]

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")

Tags = dict[str, str]


class Metric:
    """A metric. Thread-safe. Pickles as a metric of the same name."""

    _kind = ""

    def __init__(self, name: str, description: str = "", tag_keys: tuple[str, ...] | None = None) -> None:
        if not name:
            raise ValueError("Empty name is not allowed. Please provide a metric name.")
        if tag_keys is not None and not isinstance(tag_keys, tuple):
            raise TypeError(f"tag_keys should be a tuple type, got: {type(tag_keys)}")
        for key in tag_keys or ():
            if not isinstance(key, str):
                raise TypeError(f"Tag keys must be str, got {type(key)}.")
        #: A name that Prometheus would refuse: nothing is recorded.
        self._discarded = _NAME.fullmatch(name) is None
        if self._discarded:
            warnings.warn(
                f"Invalid metric name: {name}. Metric will be discarded and data will not be collected or published. Metric names can only "
                "contain letters, numbers, _, and :. Metric names cannot start with numbers.",
                UserWarning,
                stacklevel=3,
            )
        elif ":" in name:
            warnings.warn(f"Metric name {name} contains a : character, which is no longer allowed.", FutureWarning, stacklevel=3)
        self._name = name
        self._description = description
        self._tag_keys = tag_keys or ()
        self._default_tags: Tags = {}
        self._family = measured.family(name, self._kind, description, self._bounds())
        #: Ray's metric of this name, once recorded on a Ray cluster.
        self._counterpart: Any = None

    def _told_ray(self, method: str, value: float, tags: Tags | None) -> bool:
        module = counterpart_of("util.metrics")
        if module is None:
            return False
        if self._counterpart is None:
            kind, info = self.__reduce__()
            self._counterpart = getattr(module, kind.__name__)(*info)
        getattr(self._counterpart, method)(value, dict(self._tags(tags)))
        return True

    def _bounds(self) -> tuple[float, ...]:
        return ()

    def set_default_tags(self, default_tags: Tags) -> Any:
        """Values of tags that a record omits; returns the metric. ValueError for an unknown key."""
        for key, value in default_tags.items():
            if key not in self._tag_keys:
                raise ValueError(f"Unrecognized tag key {key}.")
            _check_tag(value)
        self._default_tags = default_tags
        return self

    def _tags(self, tags: Tags | None) -> measured.Tags:
        for value in (tags or {}).values():
            _check_tag(value)
        given = {**self._default_tags, **tags} if tags else self._default_tags
        missing = [key for key in self._tag_keys if key not in given]
        if missing:
            raise ValueError(f"Missing value for tag key(s): {','.join(missing)}.")
        return tuple(sorted(given.items()))

    @property
    def info(self) -> dict[str, Any]:
        """``name, description, tag_keys, default_tags``."""
        return {
            "name": self._name,
            "description": self._description,
            "tag_keys": self._tag_keys,
            "default_tags": self._default_tags,
        }

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._name, self._description, self._tag_keys)


class Counter(Metric):
    """A number that only grows. ``mray metrics`` adds ``_total`` to its name."""

    _kind = "counter"

    def inc(self, value: float = 1.0, tags: Tags | None = None) -> None:
        """Add `value`, which must be above 0."""
        _check_number(value)
        if value <= 0:
            raise ValueError(f"value must be >0, got {value}")
        if not self._discarded and not self._told_ray("inc", value, tags):
            self._family.add(self._tags(tags), value)


class Gauge(Metric):
    """A number of which the last value counts."""

    _kind = "gauge"

    def set(self, value: float | None, tags: Tags | None = None) -> None:
        """Set the number; None changes nothing."""
        if value is None:
            return
        _check_number(value)
        if not self._discarded and not self._told_ray("set", value, tags):
            self._family.set(self._tags(tags), value)


class Histogram(Metric):
    """Counts values by bucket; `boundaries` are the upper bounds, above 0 and ascending."""

    _kind = "histogram"

    def __init__(
        self, name: str, description: str = "", boundaries: Sequence[float] | None = None, tag_keys: tuple[str, ...] | None = None
    ) -> None:
        if not boundaries:
            raise ValueError(
                'boundaries argument should be provided when using the Histogram class. e.g., Histogram("name", boundaries=[1.0, 2.0])'
            )
        for index, boundary in enumerate(boundaries):
            if boundary <= 0:
                raise ValueError(f"Invalid `boundaries` argument at index {index}, {boundaries}. Use positive values for the arguments.")
        self.boundaries = boundaries
        super().__init__(name, description, tag_keys)

    def _bounds(self) -> tuple[float, ...]:
        return tuple(sorted(self.boundaries))

    def observe(self, value: float, tags: Tags | None = None) -> None:
        """Count `value`."""
        _check_number(value)
        if not self._discarded and not self._told_ray("observe", value, tags):
            self._family.observe(self._tags(tags), value)

    @property
    def info(self) -> dict[str, Any]:
        return {**super().info, "boundaries": self.boundaries}

    def __reduce__(self) -> tuple[Any, ...]:
        return Histogram, (self._name, self._description, self.boundaries, self._tag_keys)


def _check_number(value: Any) -> None:
    if not isinstance(value, (int, float)):
        raise TypeError(f"value must be int or float, got {type(value)}.")


def _check_tag(value: Any) -> None:
    if not isinstance(value, str):
        raise TypeError(f"Tag values must be str, got {type(value)}.")
