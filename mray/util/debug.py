"""Messages that appear once per process."""

from __future__ import annotations

from mray._common.clock import monotonic

__all__ = ["disable_log_once_globally", "enable_periodic_logging", "log_once", "reset_log_once"]

#: Seconds after the last new key until every key counts as new again.
_PERIOD = 60.0

_logged: set[str] = set()
_disabled = False
_periodic = False
_last = 0.0


def log_once(key: str) -> bool:
    """Whether this is the first call with this key in this process: ``if log_once("slow"): logger.warning(...)``."""
    global _last
    if _disabled:
        return False
    if key not in _logged:
        _logged.add(key)
        _last = monotonic()
        return True
    if _periodic and monotonic() - _last > _PERIOD:
        _logged.clear()
        _last = monotonic()
    return False


def disable_log_once_globally() -> None:
    """Make `log_once` return False in this process."""
    global _disabled
    _disabled = True


def enable_periodic_logging() -> None:
    """Make `log_once` forget its keys a minute after the last new one."""
    global _periodic
    _periodic = True


def reset_log_once(key: str | None = None) -> None:
    """Forget a key, or all of them."""
    if key is None:
        _logged.clear()
    else:
        _logged.discard(key)
