"""Python's logging in mray's processes: the handlers of mray's loggers, and of the root logger with a `LoggingConfig`.

The logger ``ray`` is as with Ray wherever ``import ray`` means mray (`use_rays_logger`): Ray's libraries log with it.
"""

from __future__ import annotations

import json
import logging
import sys
from typing import IO, Any

from mray._api.current import backend_if_started

#: Attributes that every `logging.LogRecord` has.
STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
_CONTEXT = (
    ("actor_id", "actor_id"),
    ("task_id", "task_id"),
    ("task_name", "task_name"),
    ("task_func_name", "function_name"),
    ("actor_name", "actor_name"),
)
FORMAT = "%(asctime)s\t%(levelname)s %(filename)s:%(lineno)s -- %(message)s"
_loggers = [logging.getLogger("mray")]


def use_rays_logger() -> None:
    """Configure the logger ``ray`` as ``import ray`` does."""
    ours = logging.getLogger("ray")
    _loggers.append(ours)
    ours.setLevel(logging.INFO)
    ours.propagate = False
    ours.addHandler(_ToStderr(sys.stderr))
    logging.getLogger("ray.rllib").setLevel(logging.WARNING)


def configure(level: int | str | None, form: str | None, wanted: bool) -> None:
    """Set the level and the format of the loggers; mray's go to stderr unless the program has handlers of its own, and ``ray`` gets none
    where the program configures all that itself.
    """
    if not wanted:
        for ours in _loggers[1:]:
            ours.handlers.clear()
        return
    if not _loggers[0].handlers and not logging.getLogger().handlers:
        _loggers[0].addHandler(_ToStderr())
    for ours in _loggers:
        for handler in ours.handlers if form else ():
            handler.setFormatter(logging.Formatter(form))
        if level is not None:
            ours.setLevel(level.upper() if isinstance(level, str) else level)
        elif ours.level == logging.NOTSET:
            ours.setLevel(logging.INFO)


def apply(encoding: str, level: str, additional: list[str]) -> None:
    """Configure the root logger of this process, and those of mray. See `LoggingConfig`."""
    handler = _Handler()
    handler.setLevel(level)
    handler.setFormatter((_AsJson if encoding == "JSON" else _AsText)(additional))
    handler.addFilter(_add_context)
    root = logging.getLogger()
    for other in root.handlers[:]:
        if isinstance(other, _Handler):
            root.removeHandler(other)
    root.setLevel(level)
    root.addHandler(handler)
    for ours in _loggers:
        ours.setLevel(level)
        ours.handlers[:] = [] if ours.propagate else [handler]


class _ToStderr(logging.Handler):
    """Writes to the current ``sys.stderr``, since notebooks and tests replace it, or in a driver to a fixed one: the logger ``ray`` writes
    to that of its import. A worker's messages are unprefixed, since the driver adds the worker's name.
    """

    def __init__(self, stream: IO[str] | None = None) -> None:
        super().__init__()
        self._stream = stream
        self.setFormatter(logging.Formatter(FORMAT))

    def emit(self, record: logging.LogRecord) -> None:
        backend = backend_if_started()
        alone = backend is not None and backend.context()["mode"] == "worker"
        try:
            ((not alone and self._stream) or sys.stderr).write((_ALONE if alone else self).format(record) + "\n")
        except (OSError, ValueError, AttributeError):  # closed, or there is none
            pass


_ALONE = logging.Formatter()


class _Handler(logging.StreamHandler):  # type: ignore[type-arg]  # not subscriptable in Python 3.10
    """mray's handler among the root logger's."""


def _add_context(record: logging.LogRecord) -> bool:
    """Ids of the job, the worker and node, and in a worker those of the actor and the task."""
    backend = backend_if_started()
    if backend is None:
        return True
    info, context = backend.info(), backend.context()
    values = {"job_id": info["job_id"], "worker_id": context["worker_id"], "node_id": info["node_id"]}
    if context["mode"] == "worker":
        values.update({name: context[key] for name, key in _CONTEXT})
    values = {name: value.hex() if isinstance(value, bytes) else value for name, value in values.items()}
    record.__dict__.update({name: value for name, value in values.items() if value})
    return True


class _Form(logging.Formatter):
    def __init__(self, additional: list[str]) -> None:
        super().__init__(FORMAT)
        self._additional = additional

    def extras(self, record: logging.LogRecord) -> dict[str, Any]:
        values = {name: getattr(record, name, None) for name in self._additional}
        values.update({name: value for name, value in record.__dict__.items() if name not in STANDARD})
        values["timestamp_ns"] = int(record.created * 1e9)
        return values


class _AsText(_Form):
    def format(self, record: logging.LogRecord) -> str:
        extras = " ".join(f"{name}={value}" for name, value in self.extras(record).items())
        return f"{super().format(record)} {extras}"


class _AsJson(_Form):
    """Formats a record as one JSON object; other values as text."""

    def format(self, record: logging.LogRecord) -> str:
        values: dict[str, Any] = {
            "asctime": self.formatTime(record),
            "levelname": record.levelname,
            "message": record.getMessage(),
            "filename": record.filename,
            "lineno": record.lineno,
            "process": record.process,
        }
        if record.exc_info:
            values["exc_text"] = record.exc_text or self.formatException(record.exc_info)
        values.update(self.extras(record))
        return json.dumps(values, default=str)
