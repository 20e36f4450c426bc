"""A driver whose disk is full, gone, read-only or tampered with: what needs it says so, and everything else goes on.

Runs in a mount namespace of its own (`test_full_disk`), where /dev/shm, the place for objects and the place for sessions are small.

    full_disk_program.py <scene> <place for objects> <place for sessions>
"""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import mray
from mray import exceptions

#: Bytes of a value, of which /dev/shm holds few.
LARGE = 1_000_000
STORE = 100 << 20
PATIENCE = 60.0
OBJECTS, SESSIONS = map(Path, sys.argv[2:4]) if len(sys.argv) > 3 else (Path(), Path())


def value(number: float) -> Any:
    return np.full(LARGE // 8, number)


def check(array: Any, number: float) -> None:
    assert array.shape == (LARGE // 8,)
    assert (array == number).all()


@mray.remote
def make(number: float) -> Any:
    return value(number)


@mray.remote
def total(array: Any) -> float:
    return float(array.sum())


@mray.remote(num_cpus=0)
class Actor:
    def make(self, number: float) -> Any:
        return value(number)

    def stream(self, number: float) -> Iterator[Any]:
        yield value(number)

    def say(self, count: int) -> int:
        for _ in range(count):
            print("x" * 999)
        return count

    def read(self, refs: list[Any]) -> float:
        return float(mray.get(refs[0]).sum())

    def keep(self, number: float) -> list[Any]:
        self.ref = mray.put(value(number))
        return [self.ref]


# ------------------------------------------------------------------------------------------------ places
def fill(place: Path, pages: int = 0) -> None:
    """Take all of the room there but so many pages."""
    empty(place)
    with (place / "filler").open("wb") as file:
        taken = 0
        while (left := os.statvfs(place).f_bfree) > pages:
            with contextlib.suppress(OSError):  # somebody was quicker
                os.posix_fallocate(file.fileno(), taken, (left - pages) * os.statvfs(place).f_bsize)
                taken += (left - pages) * os.statvfs(place).f_bsize


def empty(place: Path) -> None:
    (place / "filler").unlink(missing_ok=True)


def files() -> list[Path]:
    """Objects on disk."""
    return sorted(path for path in OBJECTS.rglob("*") if path.is_file() and not path.is_symlink() and path.name != "filler")


def eventually(condition: Callable[[], object], what: Callable[[], object]) -> None:
    """Return once the condition holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"did not come about: {what()}")
        time.sleep(0.005)


def start(**options: Any) -> list[Any]:
    """A session whose shared memory is full of objects, which are returned."""
    mray.init(num_cpus=2, logging_level="ERROR", object_store_memory=STORE, object_spilling_directory=str(OBJECTS), **options)
    held = []
    while not files():
        held.append(mray.put(value(len(held))))
    return held


def check_held(held: list[Any]) -> None:
    for number, ref in enumerate(held):
        check(mray.get(ref), number)


def check_text(text: str, *parts: str) -> None:
    """An error says all of this."""
    assert all(part in text for part in parts), text


def error_of(kind: type[BaseException], ask: Callable[[], object]) -> str:
    """The text of the error that this raises."""
    try:
        ask()
    except kind as error:
        return str(error)
    sys.exit(f"no {kind.__name__}")


# ------------------------------------------------------------------------------------------------ scenes
def full() -> None:
    """At each number of free pages, whatever makes an object gets one or an error."""
    held = start()
    actor = Actor.remote()
    ways: list[Callable[[], Any]] = [
        lambda: mray.get(mray.put(value(5))),
        lambda: mray.get(make.remote(5)),
        lambda: mray.get(actor.make.remote(5)),
        lambda: mray.get(next(actor.stream.options(num_returns="streaming").remote(5))),
    ]
    for way in ways:
        check(way(), 5)
        for pages in (0, 1, 100, LARGE // 4096, 1500):
            gc.collect()
            eventually(lambda: len(files()) == 1, files)
            fill(OBJECTS, pages)
            try:
                check(way(), 5)
                assert pages * os.sysconf("SC_PAGE_SIZE") > LARGE
            except exceptions.OutOfDiskError as error:
                check_text(str(error), str(OBJECTS), "bytes", "object_spilling_directory")
                assert pages * os.sysconf("SC_PAGE_SIZE") < LARGE
            check_held(held)
        empty(OBJECTS)
        check(way(), 5)


def removed() -> None:
    """Somebody removes the directory: what was in it is lost, memory serves on, and what has no room there is an error."""
    held = start()
    unread = mray.put(value(8))
    shutil.rmtree(next(OBJECTS.iterdir()))
    text = error_of(exceptions.ObjectStoreFullError, lambda: mray.put(value(9)))
    assert "No such file or directory" in text and str(OBJECTS) in text and "bytes" in text, text
    error_of(exceptions.ObjectStoreFullError, lambda: mray.get(make.remote(9)))
    assert "removed" in error_of(exceptions.ObjectLostError, lambda: mray.get(unread))
    check_held(held[:-1])
    del held[:-1]
    gc.collect()
    check(mray.get(mray.put(value(9))), 9)
    check(mray.get(make.remote(9)), 9)


def read_only() -> None:
    """The file system becomes read-only, and is mended."""
    held = start()
    subprocess.run(["mount", "-o", "remount,ro", str(OBJECTS)], check=True)
    for ask in (lambda: mray.put(value(9)), lambda: mray.get(make.remote(9))):
        text = error_of(exceptions.ObjectStoreFullError, ask)
        assert "Read-only file system" in text and str(OBJECTS) in text, text
    check_held(held)
    subprocess.run(["mount", "-o", "remount,rw", str(OBJECTS)], check=True)
    check(mray.get(make.remote(9)), 9)
    check_held(held)


def cut_short() -> None:
    """Somebody cuts a file short before it is read: an error that names it, for whoever reads it."""
    held = start()
    actor = Actor.remote()
    seen = set(files())

    def cut(make_it: Callable[[], Any]) -> tuple[Any, str]:
        ref = make_it()
        mray.wait([ref])
        (path,) = set(files()) - seen
        os.truncate(path, 5000)
        seen.add(path)
        return ref, path.name

    refs = [cut(make_it) for make_it in (lambda: mray.put(value(9)), lambda: make.remote(9), lambda: actor.make.remote(9))]
    for ref, name in refs:
        for ask in (mray.get, lambda ref: mray.get(total.remote(ref)), lambda ref: mray.get(actor.read.remote([ref]))):
            check_text(error_of(exceptions.RayError, partial(ask, ref)), "Its value lay in", name, "truncated it")
    check_held(held)
    check(mray.get(make.remote(9)), 9)


def sessions() -> None:
    """Nothing more can be written where sessions lie, while one runs: their logs end, they do not."""
    place = str(SESSIONS / "objects")
    mray.init(num_cpus=2, logging_level="ERROR", object_store_memory=STORE, log_to_driver=False, object_spilling_directory=place)
    old = Actor.remote()
    assert mray.get(old.say.remote(10)) == 10
    fill(SESSIONS)
    assert mray.get(old.say.remote(1000)) == 1000
    new = Actor.remote()
    assert mray.get(new.say.remote(1000)) == 1000
    with mray.dag.InputNode() as given:
        graph = new.say.bind(old.say.bind(given)).experimental_compile()
    assert mray.get(graph.execute(5)) == 5
    graph.teardown()
    held = []
    text = error_of(exceptions.OutOfDiskError, lambda: [held.append(mray.put(value(3))) for _ in range(1000)])
    assert str(SESSIONS) in text, text
    for ref in held:
        check(mray.get(ref), 3)
    mray.kill(old)
    third = Actor.remote()
    assert mray.get(third.say.remote(1)) == 1
    empty(SESSIONS)
    assert mray.get(third.say.remote(1000)) == 1000
    check(mray.get(mray.put(value(3))), 3)


def starting() -> None:
    """A session cannot start where nothing can be written, says so, and leaves nothing."""
    for pages, names in ((0, None), (1, None), (2, None), (3, None), *((None, count) for count in (0, 2, 4, 6, 9, 12))):
        empty(SESSIONS)
        if pages is not None:
            fill(SESSIONS, pages)
        else:
            taken = (info := os.statvfs(SESSIONS)).f_files - info.f_ffree
            subprocess.run(["mount", "-o", f"remount,nr_inodes={taken + names}", str(SESSIONS)], check=True)
        try:
            mray.init(num_cpus=1, logging_level="ERROR", object_store_memory=STORE, object_spilling_directory=str(OBJECTS))
            assert mray.get(total.remote(value(1))) == LARGE // 8
            mray.shutdown()
            print("started")
        except exceptions.RaySystemError as error:
            check_text(str(error), "No space left on device", str(SESSIONS), "MRAY_TMPDIR")
            print("refused")
        except exceptions.WorkerCrashedError as error:  # the session has its names, its worker has none
            check_text(str(error), "No space left on device", str(SESSIONS))
            mray.shutdown()
            print("refused")
        left = list(SESSIONS.rglob("*session_*"))
        assert not left, left
    empty(SESSIONS)
    subprocess.run(["mount", "-o", "remount,nr_inodes=0", str(SESSIONS)], check=True)
    mray.init(num_cpus=1, logging_level="ERROR", object_store_memory=STORE)


def main() -> None:
    {scene.__name__: scene for scene in (full, removed, read_only, cut_short, sessions, starting)}[sys.argv[1]]()
    mray.shutdown()
    for place in (OBJECTS, SESSIONS):
        empty(place)
    left = [*os.listdir("/dev/shm"), *files(), *SESSIONS.rglob("*session_*")]
    print(left or "nothing left")


if __name__ == "__main__":
    main()
