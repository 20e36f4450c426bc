"""`Record`: like `typing.NamedTuple`, also for type checkers, but its classes are a hundred times cheaper to create.

A NamedTuple compiles its `__new__` and each annotation; driver, node and zygote create a hundred such classes before the first answer.
Field types are not evaluated; a repr shortens values, which may be pickles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["Record"]

if TYPE_CHECKING:
    from typing import NamedTuple as Record
else:
    from collections import _tuplegetter
    from reprlib import repr as shortened

    class _RecordType(type):
        """Metaclass: fields are the annotations of the body, with its values as defaults."""

        def __new__(cls, name, bases, body):
            made = super().__new__(cls, name, bases, {"__slots__": (), **body})
            fields = made._fields = made.__match_args__ = tuple(made.__annotations__)
            made._field_defaults = {field: body[field] for field in fields if field in body}
            for place, field in enumerate(fields):
                setattr(made, field, _tuplegetter(place, None))
            return made

    class Record(tuple, metaclass=_RecordType):
        """A tuple with named items. Raises TypeError for a wrong number of values."""

        def __new__(cls, *values, **named):
            fields = cls._fields
            if named or len(values) != len(fields):
                given = dict(zip(fields, values, strict=False))
                whole = {**cls._field_defaults, **given, **named}
                if len(values) > len(fields) or whole.keys() != {*fields} or not named.keys().isdisjoint(given):
                    raise TypeError(f"{cls.__name__} has the fields {', '.join(fields)}; given were {len(values)} and {list(named)}")
                values = [whole[field] for field in fields]
            return tuple.__new__(cls, values)

        @classmethod
        def _make(cls, values):
            return cls(*values)

        def _asdict(self):
            return dict(zip(self._fields, self, strict=True))

        def _replace(self, **changed):
            return type(self)(**{**self._asdict(), **changed})

        def __getnewargs__(self):
            return tuple(self)

        def __repr__(self):
            shown = (f"{field}={shortened(value)}" for field, value in zip(self._fields, self, strict=True))
            return f"{type(self).__name__}({', '.join(shown)})"
