"""Ray Serve: two replicas that answer in batches, by handle and over HTTP, a composition, a streamed answer; prints the results as JSON."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import AsyncIterator
from typing import Any

import ray
from ray import serve
from starlette.requests import Request
from starlette.responses import StreamingResponse

PORT = 8123


@serve.deployment(num_replicas=2)
class Doubler:
    """Doubles numbers, several at a time."""

    @serve.batch(max_batch_size=8, batch_wait_timeout_s=0.05)
    async def double(self, numbers: list[int]) -> list[tuple[int, int]]:
        return [(2 * number, len(numbers)) for number in numbers]


@serve.deployment
class Front:
    """Uses the doubler."""

    def __init__(self, doubler: Any) -> None:
        self.doubler = doubler

    async def __call__(self, request: Request) -> Any:
        """Answer with ``?number=`` doubled, or with ``?count=`` lines, streamed."""
        if "count" in request.query_params:
            return StreamingResponse(self.lines(int(request.query_params["count"])), media_type="text/plain")
        doubled, _together = await self.doubler.double.remote(int(request.query_params["number"]))
        return {"doubled": doubled}

    async def lines(self, count: int) -> AsyncIterator[str]:
        """Yield numbered lines."""
        for number in range(count):
            yield f"line {number}\n"


def fetch(query: str) -> str:
    """Return the server's answer."""
    with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/?{query}", timeout=60) as answer:
        return str(answer.read().decode())


def main() -> dict[str, Any]:
    """Run all of it; returns the results by name."""
    serve.start(http_options={"port": PORT})
    serve.run(Front.bind(Doubler.bind()))
    doubler = serve.get_deployment_handle("Doubler", "default")
    answers = [each.result(timeout_s=60) for each in [doubler.double.remote(number) for number in range(16)]]
    found = {
        "by handle": [doubled for doubled, _together in answers],
        "in batches": max(together for _doubled, together in answers) > 1,
        "over HTTP": json.loads(fetch("number=21")),
        "streamed": fetch("count=3").splitlines(),
        "status": serve.status().applications["default"].status,
    }
    serve.shutdown()
    return found


if __name__ == "__main__":
    ray.init(num_cpus=4, log_to_driver=False, logging_level="ERROR")
    print(json.dumps(main()))
    ray.shutdown()
