"""A driver where shared memory cannot be made: what asks for it gets an error of one sentence that says why and what to do.

Runs in a mount namespace of its own, where /dev/shm is what a scene makes of it (`test_no_memory`). Prints a line for each demand.

    no_memory_program.py <scene>
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import mray
from mray.dag import InputNode

#: Bytes of a value that lies in shared memory.
LARGE = 1 << 20


def mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


@mray.remote
class Maker:
    def make(self, size: int) -> Any:
        return np.ones(size, np.uint8)

    def size(self, value: Any) -> int:
        return len(value)


def demand(what: str, call: Callable[[], Any]) -> Any:
    """Make it, and print what came of it."""
    try:
        value = call()
    except Exception as error:
        print(f"{what}: {type(error).__name__}: {error!s}".replace("\n", "\\n"))
    else:
        print(f"{what}: well")
        return value


def start() -> bool:
    demand("init", lambda: mray.init(num_cpus=1, logging_level="ERROR", log_to_driver=False))
    return mray.is_initialized()


def use() -> None:
    """Everything, after `init`."""
    maker = Maker.remote()
    assert mray.get(maker.size.remote(b"x")) == 1
    demand("put", lambda: mray.get(mray.put(bytes(LARGE))))
    demand("result", lambda: mray.get(maker.make.remote(LARGE)))
    with InputNode() as node:
        graph = demand("compile", lambda: maker.make.bind(node).experimental_compile())
    if graph is not None:
        demand("large result", lambda: mray.get(graph.execute(LARGE)))
        demand("small result", lambda: mray.get(graph.execute(3)))
        graph.teardown()
    with InputNode() as node:
        graph = demand("compile", lambda: maker.size.bind(node).experimental_compile())
    if graph is not None:
        demand("large input", lambda: mray.get(graph.execute(bytes(LARGE))))
        demand("small input", lambda: mray.get(graph.execute(b"x")))
        graph.teardown()


def missing() -> None:
    mount("-t", "tmpfs", "none", "/dev")
    assert not os.path.exists("/dev/shm")
    os.mknod("/dev/null", 0o666 | 0o020000, os.makedev(1, 3))
    start()


def read_only() -> None:
    mount("-o", "remount,ro", "/dev/shm")
    start()


def full() -> None:
    mount("-o", "remount,size=16k", "/dev/shm")
    start()


def read_only_later() -> None:
    assert start()
    mount("--bind", "/dev/shm", "/dev/shm")
    mount("-o", "remount,bind,ro", "/dev/shm")
    use()
    subprocess.run(["umount", "/dev/shm"], check=True)


def short_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGE // 2, resource.RLIM_INFINITY))
    assert start()
    use()
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def filled() -> None:
    assert start()
    info = os.statvfs("/dev/shm")
    with open("/dev/shm/filler", "wb") as file:
        os.posix_fallocate(file.fileno(), 0, (info.f_bavail - 128) * info.f_frsize)
    use()
    os.unlink("/dev/shm/filler")


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    if mray.is_initialized():
        mray.shutdown()
    if os.path.exists("/dev/shm"):
        assert not os.listdir("/dev/shm"), os.listdir("/dev/shm")
