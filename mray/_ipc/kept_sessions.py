"""The rest of a session that has ended: its log files, and its processes' records of their last calls.

::

    driver, workers, node ──write_record──▶ SESSION/records ─┐
    node ──worker's output──▶ SESSION/logs ──────────────────┴─ keep (renamed) ──▶ last/SESSION, beside the sessions

The process that removes a session (`mray._ipc.reaper`) keeps these two folders, so the logs stay also after crashes; a process that was
killed has written no record. The last sessions are kept, each within `MOST_BYTES`: of larger log files the ends.
"""

from __future__ import annotations

import contextlib
import marshal
from collections.abc import Iterator
from typing import Any

from mray._common.kept import io, os
from mray._common.version import __version__
from mray._ipc.frames import decode

#: Folder beside the sessions; in it, one for each kept session, with its logs and its records.
LAST = "last"
LOGS = "logs"
RECORDS = "records"
#: Bytes of a kept session, and its files. A file takes a block of the disk at least.
MOST_BYTES = 16 << 20
MOST_FILES = 1000
_BLOCK = 4096
#: Link in a session's directory; its target is the number of sessions to keep.
_KEEP = "keep"
#: The record of the node.
NODE = "node"
#: Readable by each Python that mray runs on.
_FORMAT = 4


def mark(directory: str, count: int) -> None:
    """Have this session kept, as one of the last `count`; not where no link can be created."""
    if count > 0:
        with contextlib.suppress(OSError):
            os.symlink(str(count), os.path.join(directory, _KEEP))


def kept_count(directory: str) -> int:
    """How many sessions are to be kept when this one ends; 0 if it is not to be kept."""
    try:
        return int(os.readlink(os.path.join(directory, _KEEP)))
    except (OSError, ValueError):
        return 0


def write_record(directory: str, process: str, record: dict[str, Any], most: int = MOST_BYTES) -> None:
    """Write the lists that a process remembers, if any: their ends, of at most `most` bytes."""
    if not any(isinstance(each, list) and each for each in record.values()):
        return
    record = {"version": __version__, **record}
    data = marshal.dumps(record, _FORMAT)
    while len(data) > most and any(isinstance(each, list) and each for each in record.values()):
        record = {name: each[len(each) // 2 + 1 :] if isinstance(each, list) else each for name, each in record.items()}
        data = marshal.dumps(record, _FORMAT)
    with contextlib.suppress(OSError):  # the disk is full, or the session has been removed
        with contextlib.suppress(FileExistsError):
            os.mkdir(os.path.join(directory, RECORDS), 0o700)
        with io.open(os.path.join(directory, RECORDS, process), "wb", opener=_private) as file:
            file.write(data)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def read_records(directory: str) -> dict[str, dict[str, Any]]:
    """The records of a kept session by process, without those that are not whole or of another version."""
    found = {}
    folder = os.path.join(directory, RECORDS)
    for name in _names(folder):
        with contextlib.suppress(OSError, ValueError), io.open(os.path.join(folder, name), "rb") as file:
            record = decode(file.read())  # its writer may have been killed meanwhile
            if isinstance(record, dict) and record.get("version") == __version__:
                found[name] = record
    return found


# ------------------------------------------------------------------------------------------------- keeping
def keep(directory: str) -> list[str]:
    """Keep a session that is about to be removed, if it was marked and has printed or run anything. Idempotent.

    Returns the directories of sessions that are no longer among the last ones, to be removed.
    """
    count = kept_count(directory)
    if not count or not _has_anything(directory):
        return []
    parent, name = os.path.split(directory.rstrip("/"))
    place = os.path.join(parent, LAST)
    kept = os.path.join(place, name)
    with contextlib.suppress(OSError):
        os.makedirs(kept, 0o700, exist_ok=True)
        for folder in (RECORDS, LOGS):
            with contextlib.suppress(OSError):  # it is not there, or another process was first
                os.rename(os.path.join(directory, folder), os.path.join(kept, folder))
        _bound(kept)
    return [path for _end, path in kept_in(place)[:-count]]


def _has_anything(directory: str) -> bool:
    if any(name != NODE for name in _names(os.path.join(directory, RECORDS))):
        return True
    with contextlib.suppress(OSError), os.scandir(os.path.join(directory, LOGS)) as entries:
        return any(entry.is_file(follow_symlinks=False) and entry.stat().st_size for entry in entries)
    return False


def kept_in(place: str) -> list[tuple[int, str]]:
    """The ends of the kept sessions in a folder `LAST`, and their directories, the last one last."""
    ended = []
    for name in _names(place):
        with contextlib.suppress(OSError):  # it was just removed
            ended.append((os.stat(os.path.join(place, name)).st_mtime_ns, os.path.join(place, name)))
    return sorted(ended)


def _names(folder: str) -> list[str]:
    with contextlib.suppress(OSError):
        return sorted(os.listdir(folder))
    return []


def _files(folder: str) -> Iterator[tuple[int, float, str]]:
    """Size, time and path of every file below a folder."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _files(entry.path)
            elif entry.is_file(follow_symlinks=False):
                info = entry.stat(follow_symlinks=False)
                yield max(info.st_size, _BLOCK), info.st_mtime, entry.path


def _bound(kept: str) -> None:
    """Remove the oldest files where there are too many, and the beginnings of log files that are too large."""
    found = sorted(_files(kept), key=lambda each: each[1])
    if sum(size for size, _time, _path in found) <= MOST_BYTES and len(found) <= MOST_FILES:
        return
    for _size, _time, path in found[:-MOST_FILES]:
        _unlink(path)
    own = os.path.join(kept, RECORDS, NODE)
    # The node's first, then small ones: each file has an equal share of the bytes that smaller ones leave.
    found = sorted(found[-MOST_FILES:], key=lambda each: (each[2] != own, each[0]))
    left = MOST_BYTES
    for count, (size, _time, path) in zip(range(len(found), 0, -1), found, strict=True):
        share = left if path == own else left // count
        if size <= share:
            left -= size
        elif os.path.dirname(path) == os.path.dirname(own):
            _unlink(path)
        else:
            _cut(path, share)
            left -= share


def _unlink(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def _cut(path: str, most: int) -> None:
    """Leave the last lines of a file."""
    new = f"{path}.new"
    try:
        info = os.stat(path)
        with io.open(path, "rb") as file, io.open(new, "wb", opener=_private) as end:
            file.seek(-most, os.SEEK_END)
            data = file.read(most)
            end.write(data[data.find(b"\n") + 1 :])
        os.utime(new, ns=(info.st_atime_ns, info.st_mtime_ns))
        os.replace(new, path)
    except OSError:  # the disk is full
        _unlink(new)
        _unlink(path)
