"""`Finding`: one line of `mray doctor`."""

from __future__ import annotations

from dataclasses import dataclass

# Verdicts. `NOTE` marks what is optional and absent.
OK = "ok"
NOTE = "note"
WARNING = "warning"
BAD = "bad"


@dataclass(frozen=True)
class Finding:
    """The subject of a check, its verdict, and the remedy."""

    subject: str
    verdict: str
    text: str
    advice: str = ""
