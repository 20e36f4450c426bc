"""`Finding`: one line of `mray doctor`."""

from __future__ import annotations

from dataclasses import dataclass

# `NOTE`: optional and absent.
OK = "ok"
NOTE = "note"
WARNING = "warning"
BAD = "bad"


@dataclass(frozen=True)
class Finding:
    """A check's subject, verdict and remedy."""

    subject: str
    verdict: str
    text: str
    advice: str = ""
