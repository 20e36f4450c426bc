"""Folders and archives of a runtime environment: where a worker finds their contents.

A folder with exclusions is copied once into the session's directory, by the first worker that is started with it. A file, an archive or
a module, is unpacked or copied there once, by the process that names it.

    SESSION/environments/<16 hex digits>                   the contents of a file, importable
    SESSION/environments/<16 hex digits>/NAME              the folder NAME, without excluded files
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence

from mray._common.kept import os

ARCHIVES = (".zip", ".whl", ".tar.gz", ".tgz", ".tar.xz")
MODULE = ".py"
#: Never part of a folder that is copied.
_DEFAULT_EXCLUDES = (".git", ".venv", "venv", "__pycache__")


def is_taken_over(path: str, session_dir: str) -> bool:
    """Whether `path` is a folder that `taken_over` created."""
    return os.path.dirname(path) == _folder(session_dir)


def _folder(session_dir: str) -> str:
    return os.path.join(session_dir, "environments")


def taken_over(path: str, session_dir: str) -> str:
    """The folder in the session's directory with the contents of a file; a folder stays in place."""
    if os.path.isdir(path):
        return path
    return _made(path, (), session_dir, lambda draft: _extract(path, draft))


def unpacked(path: str, excludes: Sequence[str], session_dir: str) -> str:
    """A folder, or its copy without excluded files. Exclusions do not apply to the contents of files."""
    if not excludes or is_taken_over(path, session_dir):
        return path
    name = os.path.basename(path.rstrip("/")) or "root"
    return os.path.join(_made(path, excludes, session_dir, lambda draft: _copy(path, os.path.join(draft, name), excludes)), name)


def _made(path: str, excludes: Sequence[str], session_dir: str, make: Callable[[str], None]) -> str:
    """The folder for this state of `path`; `make` fills a new one."""
    import hashlib  # noqa: PLC0415  (with the next 8 ms of the start of every session, which hardly any needs)

    from mray._common.kept import shutil  # noqa: PLC0415

    name = hashlib.sha1(repr((stamp_of(path, excludes), excludes)).encode(), usedforsecurity=False).hexdigest()[:16]
    target = os.path.join(_folder(session_dir), name)
    if os.path.exists(target):
        return target
    # Several processes and threads may do so concurrently: each fills its own draft, and the first to finish renames it.
    draft = f"{target}.{os.getpid()}.{os.urandom(4).hex()}"
    try:
        make(draft)
        try:
            os.rename(draft, target)
        except OSError:
            if not os.path.exists(target):
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return target


def _extract(path: str, draft: str) -> None:
    os.makedirs(draft)
    if path.endswith(MODULE):
        from mray._common.kept import shutil  # noqa: PLC0415

        shutil.copy2(path, draft)
    elif path.endswith((".zip", ".whl")):
        import zipfile  # noqa: PLC0415

        with zipfile.ZipFile(path) as archive:
            archive.extractall(draft)
    else:
        import tarfile  # noqa: PLC0415  (5 ms that hardly any worker needs)

        with tarfile.open(path) as tar:
            if hasattr(tarfile, "data_filter"):
                tar.extractall(draft, filter="data")
            else:  # an old Python; the archive is the user's own
                tar.extractall(draft)


def stamp_of(path: str, excludes: Sequence[str] = ()) -> tuple[str, list[tuple[str, tuple[int, ...]]]]:
    """A value that changes when a file is written again, or any file of a folder that is not excluded."""
    if not os.path.isdir(path):
        return path, [("", _state_of(os.stat(path)))]
    is_excluded = excluder((*_DEFAULT_EXCLUDES, *excludes))
    found = []
    for folder, folders, files in os.walk(path):
        above = os.path.relpath(folder, path)
        prefix = "" if above == "." else above + "/"
        folders[:] = [name for name in folders if not is_excluded(prefix + name, True)]
        for name in files:
            with contextlib.suppress(FileNotFoundError):  # it was just removed
                info = os.lstat(os.path.join(folder, name))
                if not is_excluded(prefix + name, False):
                    found.append((prefix + name, _state_of(info)))
    return path, sorted(found)


def _state_of(info: os.stat_result) -> tuple[int, ...]:
    """Numbers that change when a file is written again, even with the same size.

    The modification time is not enough: reproducible builds set it in their archives. The inode's change time cannot be set.
    """
    return info.st_mtime_ns, info.st_ctime_ns, info.st_ino, info.st_size


def _copy(path: str, target: str, excludes: Sequence[str]) -> None:
    is_excluded = excluder((*_DEFAULT_EXCLUDES, *excludes))

    def ignore(folder: str, names: list[str]) -> set[str]:
        above = os.path.relpath(folder, path)
        full = {name: name if above == "." else f"{above}/{name}" for name in names}
        return {name for name in names if is_excluded(full[name], os.path.isdir(os.path.join(folder, name)))}

    from mray._common.kept import shutil  # noqa: PLC0415

    shutil.copytree(path, target, ignore=ignore, symlinks=True)


def excluder(patterns: Sequence[str]) -> Callable[[str, bool], bool]:
    """A function that says whether a path (relative, with slashes) is excluded, given whether it is a folder.

    The patterns are those of a ``.gitignore``: the last match decides, ``!`` negates, a slash at the beginning or in the middle ties a
    pattern to the top, one at the end means folders, ``**`` any number of folders.
    """
    rules = []
    for pattern in patterns:
        takes_back = pattern.startswith("!")
        text = pattern[takes_back:].strip()
        if not text or text.startswith("#"):
            continue
        folders_only = text.endswith("/")
        text = text.rstrip("/")
        if "/" not in text:
            text = "**/" + text
        rules.append((re.compile(_expression(text.lstrip("/"))), takes_back, folders_only))

    def is_excluded(path: str, is_folder: bool) -> bool:
        is_matched = False
        for expression, takes_back, folders_only in rules:
            if (is_folder or not folders_only) and expression.fullmatch(path):
                is_matched = not takes_back
        return is_matched

    return is_excluded


def _expression(pattern: str) -> str:
    parts = []
    at = 0
    for match in re.finditer(r"\*\*/|/\*\*$|\*+|\?|\[!?[^\]]+\]", pattern):
        parts.append(re.escape(pattern[at : match.start()]))
        at = match.end()
        found = match.group()
        if found == "**/":
            parts.append("(?:.*/)?")
        elif found == "/**":
            parts.append("/.*")
        elif found.startswith("*"):
            parts.append("[^/]*")
        elif found == "?":
            parts.append("[^/]")
        else:
            parts.append(found.replace("[!", "[^", 1))
    return "".join(parts) + re.escape(pattern[at:])
