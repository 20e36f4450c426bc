"""Waiting for many refs with a progress bar."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mray._api.object_ref import ObjectRef
from mray._api.verbs import get, wait
from mray._common.clock import now
from mray._inside.bars import tqdm
from mray.exceptions import GetTimeoutError

_STEP = 0.2


def progress(refs: Sequence[ObjectRef], desc: str | None = None, *, timeout: float | None = None, unit: str = "it") -> list[Any]:
    """Return the values of refs in their order, as `get` does, with a bar that counts those that have arrived.

    Every ref is waited for before the first error is raised. GetTimeoutError after `timeout` seconds. In tasks and actors the driver
    draws the bar.
    """
    refs = list(refs)
    until = None if timeout is None else now() + timeout
    pending = list(dict.fromkeys(refs))
    total = len(pending)
    with tqdm(desc=desc, total=total, unit=unit, flush_interval_s=_STEP) as bar:
        bar.refresh()
        while pending:
            left = _STEP if until is None else min(_STEP, max(0.0, until - now()))
            ready, pending = wait(pending, num_returns=len(pending), timeout=left)
            bar.update(len(ready))
            if pending and until is not None and now() >= until:
                raise GetTimeoutError(f"Get timed out: {len(pending)} of {total} object(s) not ready after {timeout} s.")
    values: list[Any] = get(refs)
    return values
