"""The driver program of `test_concurrent_actors.py`; not a test.

    python concurrent_program.py KIND FOLDER

An actor of that kind has hundreds of calls in flight. The program says so by the file ``reached`` (with the actor's pid), and once it is
told that the harm is done reports what those who wait for them got: in `get`, and in coroutines of its own.
"""

import asyncio
import os
import sys
import threading
import time

import mray as ray

KIND, FOLDER = sys.argv[1:3]
CALLS = 300


def path(name):
    return os.path.join(FOLDER, name)


class Async:
    def __init__(self):
        self.begun = 0

    async def hang(self):
        self.begun += 1
        await asyncio.sleep(1000)

    async def pid(self, count):
        while self.begun < count:
            await asyncio.sleep(0.001)
        return os.getpid()


class Threaded:
    def __init__(self):
        self.begun = []

    def hang(self):
        self.begun.append(1)
        threading.Event().wait()

    def pid(self, count):
        while len(self.begun) < count:
            time.sleep(0.001)
        return os.getpid()


def actor():
    if KIND == "async":
        return ray.remote(Async).remote(), CALLS
    if KIND == "threads":
        return ray.remote(max_concurrency=9)(Threaded).remote(), 8
    # Calls in the loop of a group.
    Async.hang = ray.method(concurrency_group="io")(Async.hang)
    return ray.remote(concurrency_groups={"io": 50})(Async).remote(), 50


async def outcomes(refs):
    return await asyncio.gather(*refs, return_exceptions=True)


def main():
    ray.init(num_cpus=2, logging_level="ERROR")
    victim, begun = actor()
    refs = [victim.hang.remote() for _ in range(begun)]
    pid = ray.get(victim.pid.remote(begun), timeout=50)
    refs += [victim.hang.remote() for _ in range(CALLS - begun)]
    with open(path("reached.new"), "w") as file:
        file.write(str(pid))
    os.rename(path("reached.new"), path("reached"))
    got = asyncio.run(outcomes(refs))
    kinds = sorted({type(each).__name__ for each in got})
    print("ASYNCIO", len(got), *kinds, flush=True)
    print("TEXT", str(got[0]).replace("\n", " "), flush=True)
    for ref in refs:
        try:
            ray.get(ref, timeout=50)
            kinds.append("a value")
        except Exception as error:
            kinds.append(type(error).__name__)
    print("GET", *sorted(set(kinds)), flush=True)
    ray.shutdown()
    print("DONE", flush=True)


if __name__ == "__main__":
    main()
