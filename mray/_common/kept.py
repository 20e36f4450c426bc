"""The modules of the standard library as mray needs them, even where a program replaces them.

pytest-socket replaces `socket.socket`, pyfakefs `os`, `io` and `shutil`, others `open` or `os.stat`: for the program, not for the
sockets and the shared memory by which it reaches its session. So mray takes copies made when it was imported, ``from mray._common.kept
import os``, whose functions use each other.

Not copied: `os._exit`, which coverage.py replaces to save its data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["fcntl", "io", "os", "shutil", "socket", "tempfile"]

if TYPE_CHECKING:
    import fcntl
    import io
    import os
    import shutil
    import socket
    import tempfile
else:
    import _socket
    import fcntl as _fcntl
    import io as _io
    import os as _os
    import posix as _posix
    import socket as _sockets
    from types import BuiltinFunctionType as _Builtin
    from types import FunctionType as _Function
    from types import ModuleType as _Module

    def _copy(original, **others):
        """A copy whose functions see the copy and `others` instead of the originals."""
        copy = _Module(f"kept {original.__name__}", original.__doc__)
        there = vars(copy)
        names = {name: value for name, value in vars(original).items() if not name.startswith("__")}
        for name, value in names.items():
            if type(value) is _Function and value.__globals__.get("__name__") in _COPIED:
                function = _Function(value.__code__, there, value.__name__, value.__defaults__, value.__closure__)
                function.__kwdefaults__ = value.__kwdefaults__
                there[name] = function
            else:
                there[name] = value
        there.update(others)
        return copy

    _COPIED = ("os", "posixpath", "genericpath", "shutil", "socket", "tempfile")

    os = _copy(_os)
    vars(os).update((name, value) for name, value in vars(_posix).items() if name in vars(os) and type(value) is _Builtin)
    os.path = _copy(_os.path, os=os)
    del os._exit  # looked up when called
    os.__getattr__ = lambda name, original=_os: getattr(original, name)
    io = _copy(_io)
    os.fdopen = io.open  # `os.fdopen` imports `io` by name
    fcntl = _copy(_fcntl)
    #: Where mray is imported under a guard, `socket.socket` is another class.
    _class = next(each for each in _socket.socket.__subclasses__() if each.__module__ == "socket" and each.__name__ == "socket")
    socket = _copy(_sockets, socket=_class, os=os)
    #: pyfakefs replaces them wherever a module has them.
    del _fcntl, _io, _os, _posix

    def __getattr__(name):
        """`shutil` and `tempfile`, which are slow to import."""
        if name == "shutil":
            import shutil as original  # noqa: PLC0415

            others = {"os": os}
        elif name == "tempfile":
            import tempfile as original  # noqa: PLC0415

            others = {"_os": os, "_io": io}
        else:
            raise AttributeError(name)
        copy = globals()[name] = _copy(original, **others)
        return copy
