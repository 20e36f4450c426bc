"""Remote variables (design page follows)."""

from __future__ import annotations

from mray.proxy.errors import InterpreterDiedError, RemoteError, StepFailed, VarReleasedError
from mray.proxy.factory import RemoteInterpreterFactory
from mray.proxy.remote_interpreter import IRemoteInterpreter, RemoteInterpreter
from mray.proxy.var import Var

__all__ = [
    "IRemoteInterpreter",
    "InterpreterDiedError",
    "RemoteError",
    "RemoteInterpreter",
    "RemoteInterpreterFactory",
    "StepFailed",
    "Var",
    "VarReleasedError",
]
