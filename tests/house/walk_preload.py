"""Imported by the zygote of `tests.house.walks`: a worker records the files that its main thread enters from the fork on."""

from __future__ import annotations

import os
import sys
from types import FrameType

#: The files of code that has been entered in this process.
entered: set[str] = set()


def _record(frame: FrameType, event: str, _argument: object) -> None:
    if event == "call":
        entered.add(frame.f_code.co_filename)


os.register_at_fork(after_in_child=lambda: sys.setprofile(_record))
