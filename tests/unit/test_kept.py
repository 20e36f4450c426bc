"""The copies of modules of the standard library that mray keeps, beside guards that a program puts into the place of the originals."""

from __future__ import annotations

import ast
import builtins
import io
import os
import shutil
import socket
import tempfile
from pathlib import Path
from typing import Any

import pytest

from mray._common import kept
from tests.house.source import modules, nodes

#: Packages that are written against the public API, or run as programs of their own.
_OTHERS = tuple(f"mray/{name}/" for name in ("cli", "examples", "_picture", "testing", "pytest_plugin", "_libraries", "_backends/ray"))
#: Modules that replace functions of the real module for the user's code.
_REAL = ("mray/_common/kept.py", "mray/_backends/local/patches.py", "mray/_runtime/processes/line_coverage.py")
_KEPT = {"fcntl", "io", "os", "shutil", "socket"}


def refuse(*_arguments: Any, **_keywords: Any) -> Any:
    raise AssertionError("a guard")


def test_functions_of_files_are_what_they_were(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with monkeypatch.context() as guard:
        for name in ("open", "stat", "lstat", "mkdir", "listdir", "scandir", "unlink", "rmdir", "access", "close", "write"):
            guard.setattr(os, name, refuse)
        guard.setattr(builtins, "open", refuse)
        guard.setattr(io, "open", refuse)
        place = kept.os.path.join(str(tmp_path), "a", "b")
        kept.os.makedirs(place)
        with kept.io.open(place + "/file", "w") as file:
            file.write("text")
        fd = kept.os.open(place + "/file", kept.os.O_RDONLY)
        with kept.os.fdopen(fd) as file:
            assert file.read() == "text"
        assert kept.os.path.isfile(place + "/file")
        assert kept.os.path.realpath(place) == place
        assert [names for _folder, _folders, names in kept.os.walk(str(tmp_path / "a"))] == [[], ["file"]]
        kept.shutil.rmtree(str(tmp_path / "a"))
        assert not kept.os.path.exists(place)
        assert kept.os.path.isdir(kept.tempfile.gettempdir())
    assert kept.os.environ is os.environ
    assert kept.shutil is not shutil
    assert kept.tempfile is not tempfile


def test_sockets_are_what_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    original = socket.socket
    with monkeypatch.context() as guard:
        guard.setattr(socket, "socket", refuse)
        here, there = kept.socket.socketpair()
        other = kept.socket.socket(fileno=os.dup(there.fileno()))
        with here, there, other:
            assert {type(each) for each in (here, there, other)} == {original}
            here.sendall(b"x")
            assert other.recv(1) == b"x"


def test_the_end_of_a_process_is_looked_up_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "_exit", lambda _status: "late")
    late: Any = kept.os._exit
    assert late(0) == "late"
    with pytest.raises(AttributeError):
        kept.os.no_such_name  # noqa: B018
    with pytest.raises(AttributeError):
        kept.no_such_name  # noqa: B018


def test_the_kernel_takes_what_guards_replace_from_there() -> None:
    found = []
    for path, tree in modules().items():
        if path.startswith(_OTHERS) or path in _REAL:
            continue
        for node in nodes(tree):
            if isinstance(node, ast.Import):
                found += [f"{path}:{node.lineno}: import {alias.name}" for alias in node.names if alias.name in _KEPT]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open":
                found.append(f"{path}:{node.lineno}: open()")
    assert not found
