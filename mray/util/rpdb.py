"""The debugger of workers, by Ray's name: ``ray.util.pdb.set_trace()`` is ``breakpoint()``."""

from __future__ import annotations

import sys

from mray._inside.debugging import current

__all__ = ["set_trace"]


def set_trace(breakpoint_uuid: bytes | None = None) -> None:
    """Debug the caller: in a worker as ``breakpoint()`` does, in a driver with plain pdb. `breakpoint_uuid` is ignored.

    RuntimeError in a worker whose driver has no terminal (see MRAY_BREAKPOINT).
    """
    frame = sys._getframe(1)
    here = current()
    if here is None:
        import pdb  # noqa: PLC0415  (20 ms that `mray.util` must not take)

        pdb.Pdb().set_trace(frame)
    else:
        here.stop(frame)
