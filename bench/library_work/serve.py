"""Ray Serve: a first request, then calls and requests one by one, then requests at a fixed rate."""

from __future__ import annotations

import statistics
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ray import serve
from shared import rate, run, tell

PORT = 8127


@serve.deployment
class Echo:
    async def __call__(self, request: Any) -> str:
        return str(request if isinstance(request, int) else request.query_params["number"])


def fetch(number: int) -> float:
    begun = time.perf_counter()
    with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/?number={number}", timeout=60) as answer:
        assert answer.read() == str(number).encode()
    return time.perf_counter() - begun


def fetch_at(begin: float, number: int) -> float:
    time.sleep(max(0.0, begin + number / 100 - time.perf_counter()))
    return fetch(number)


def work() -> Iterator[None]:
    serve.start(http_options={"port": PORT})
    handle = serve.run(Echo.bind())
    fetch(1)
    tell("first", time.time())
    for _ in range(50):
        fetch(1)
        handle.remote(1).result()
    tell("calls by handle/s", rate(300, lambda: [handle.remote(1).result() for _ in range(300)]))
    tell("requests/s", rate(300, lambda: [fetch(number) for number in range(300)]))
    with ThreadPoolExecutor(8) as pool:
        begin = time.perf_counter() + 0.1
        took = sorted(pool.map(lambda number: fetch_at(begin, number), range(500)))
    tell("ms at 100 requests/s, median", 1e3 * statistics.median(took))
    tell("ms at 100 requests/s, p99", 1e3 * took[int(len(took) * 0.99)])
    yield
    serve.shutdown()


if __name__ == "__main__":
    run(work)
