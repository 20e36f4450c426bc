"""`LoggingConfig`: one configuration of Python's logging for the driver and for every worker of a session.

Applied in the driver by `init`, in a worker before any user code: a handler on the root logger that writes text or JSON lines to
stderr, with the ids of the process, actor and task that logs (`mray._api.log_handlers`). Without one, workers log as plain Python does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

_ENCODINGS = ("TEXT", "JSON")


@dataclass
class LoggingConfig:
    """How the processes of a session log.

    `encoding` is ``"TEXT"`` or ``"JSON"``, `log_level` a name of a level, `additional_log_standard_attrs` names of attributes of
    `logging.LogRecord` to add to each line. Raises ValueError for an unknown encoding or attribute.
    """

    encoding: str = "TEXT"
    log_level: str = "INFO"
    additional_log_standard_attrs: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.encoding not in _ENCODINGS:
            raise ValueError(f"Invalid encoding type: {self.encoding}. Valid encoding types are: {list(_ENCODINGS)}")
        if self.additional_log_standard_attrs:
            from mray._api.log_handlers import STANDARD  # noqa: PLC0415  (imports `logging`)

            for name in self.additional_log_standard_attrs:
                if name not in STANDARD:
                    raise ValueError(f"Unknown python logging standard attribute: {name}. The valid attributes are: {set(STANDARD)}")

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> LoggingConfig:
        """From builtin values; unknown names are ignored."""
        return cls(**{name: value for name, value in d.items() if name in cls.__dataclass_fields__})

    def apply(self) -> None:
        """Configure the root logger of this process, and those of mray."""
        from mray._api.log_handlers import apply  # noqa: PLC0415  (imports `logging`)

        apply(self.encoding, self.log_level, self.additional_log_standard_attrs)
