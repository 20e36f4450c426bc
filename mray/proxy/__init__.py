"""Remote variables (design page follows)."""

from __future__ import annotations

from mray.proxy._errors import InterpreterDiedError, RemoteError, StepFailed, VarReleasedError
from mray.proxy._factory import RemoteInterpreterFactory
from mray.proxy._remote_interpreter import IRemoteInterpreter, RemoteInterpreter
from mray.proxy._var import Var

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
