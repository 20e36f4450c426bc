"""Ray's llm library, without a model server: rows of a dataset become requests to an HTTP endpoint, and its answers rows again."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("ray")
pytest.importorskip("aiohttp")

from tests.full import full


class Echo(http.server.BaseHTTPRequestHandler):
    """Answers like a model server that says the last message again, and each third request that it is busy."""

    protocol_version = "HTTP/1.1"
    asked = 0

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        type(self).asked += 1
        busy = type(self).asked % 3 == 0
        answer = json.dumps({"choices": [{"message": {"content": body["messages"][-1]["content"] + "!"}}]}).encode()
        self.send_response(429 if busy else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/v1/chat/completions"
    server.shutdown()
    thread.join()
    server.server_close()


@full
def test_rows_become_requests_and_answers_rows(ray_session: Any, url: str) -> None:
    import ray.data
    from ray.data.llm import HttpRequestProcessorConfig, build_processor

    processor = build_processor(
        HttpRequestProcessorConfig(url=url, headers={"Authorization": "Bearer none"}, qps=200, max_retries=5, concurrency=1, batch_size=8),
        preprocess=lambda row: {"payload": {"model": "echo", "messages": [{"role": "user", "content": f"number {row['id']}"}]}},
        postprocess=lambda row: {"said": row["http_response"]["choices"][0]["message"]["content"]},
    )
    said = [row["said"] for row in processor(ray.data.range(20)).take_all()]
    assert sorted(said) == sorted(f"number {number}!" for number in range(20))
