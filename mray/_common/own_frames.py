"""Which frames of a stack are mray's own: to a user who looks for a line of the program they are in the way.

Pure but for `hide_in_interrupts`, in the driver. Frames are hidden where a stack is shown (an interrupt, `mray stack`, pytest), never
where it is made.
"""

from __future__ import annotations

import sys
import sysconfig
import threading
from collections.abc import Sequence
from types import TracebackType

from mray._common.kept import os

#: Of a frame.
OWN, LIBRARY, USERS = "own", "library", "user's"

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
#: Programs to read and to run, as a user's are.
_EXAMPLES = os.path.join(_PACKAGE, "examples") + os.sep
_LIBRARY = tuple({path + os.sep for name in ("stdlib", "platstdlib") if (path := sysconfig.get_path(name))})
_OTHERS = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep)


def kind_of(filename: str) -> str:
    """The owner of a file's code: mray itself, Python's library, or the user, to whom all other belongs."""
    # py-spy names a file of a package from the package on.
    if (filename.startswith(_PACKAGE) and not filename.startswith(_EXAMPLES)) or filename.startswith("mray/_"):
        return OWN
    if filename.startswith("<frozen ") or filename.removesuffix(".py").partition("/")[0] in sys.stdlib_module_names:
        return LIBRARY
    if filename.startswith(_LIBRARY) and not any(each in filename for each in _OTHERS):
        return LIBRARY
    return USERS


def span_of_user(kinds: Sequence[str]) -> tuple[int, int]:
    """The part of a stack, its oldest frame first, that a user wants to see: from the user's first frame on up to mray's first after the
    user's last one, which says what is waited for. (0, 0) when no frame is the user's.
    """
    users = [place for place, kind in enumerate(kinds) if kind == USERS]
    if not users:
        return 0, 0
    end = next((place + 1 for place in range(users[-1] + 1, len(kinds)) if kinds[place] == OWN), len(kinds))
    return users[0], end


def cut_below_user(found: TracebackType | None) -> None:
    """Let a traceback end with the user's last frame, where all below it begins with one of mray's."""
    last: TracebackType | None = None
    while found is not None:
        kind = kind_of(found.tb_frame.f_code.co_filename)
        below = found.tb_next
        if kind == USERS:
            last = found if below is not None and kind_of(below.tb_frame.f_code.co_filename) == OWN else None
        found = below
    if last is not None:
        last.tb_next = None


_hooked = False


def hide_in_interrupts() -> None:
    """From now on the traceback of an interrupt that ends the program ends in the user's line. The main thread's program only; once."""
    global _hooked
    if _hooked or threading.current_thread() is not threading.main_thread():
        return
    _hooked = True
    shown = sys.excepthook

    def excepthook(kind: type[BaseException], value: BaseException, found: TracebackType | None) -> None:
        if isinstance(value, KeyboardInterrupt):
            cut_below_user(found)
        shown(kind, value, found)

    sys.excepthook = excepthook
