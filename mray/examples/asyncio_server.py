"""A server in asyncio that feeds a graph: many clients at once, one request each at a time, over a Unix socket.

    python -m mray.examples.asyncio_server [requests] [clients]

    client ─┐                    ┌─────────── event loop of the driver ───────────┐
    client ─┼── lines of text ──▶│ a coroutine for each connection awaits its ... │──▶ actor: words ──▶ actor: scores ──▶ ...
    client ─┘◀── a score each ───│ ... future, which holds up none of the others  │◀── result
                                 └────────────────────────────────────────────────┘

`execute_async` submits and gives a future; awaiting that one gives the result. A request that cannot be answered raises in the
coroutine that awaits it, and nowhere else. The clients are coroutines of the same process here; anything that opens the socket may be one.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import mray
from mray.dag import InputNode
from mray.examples.latencies import Comparison, Latency, print_comparisons, summarize

#: Requests that the graph works on at once. The others wait in the server.
IN_FLIGHT = 16

Score = Callable[[str], Awaitable[int]]


@mray.remote
class Tokenizer:
    """The first stage."""

    def words(self, text: str) -> list[str]:
        """The words of a text, in lower case; ValueError when there are none."""
        words = text.lower().split()
        if not words:
            raise ValueError("a text without words has no score")
        return words


@mray.remote
class Scorer:
    """The second stage."""

    def __init__(self, weights: dict[str, int]) -> None:
        self.weights = weights

    def score(self, words: list[str]) -> int:
        """The sum of the words' weights; what is not known counts nothing."""
        return sum(self.weights.get(word, 0) for word in words)


WEIGHTS = {"good": 2, "great": 3, "fine": 1, "bad": -2, "awful": -3}


class Server:
    """Answers each line with its score, or with ``error`` and the reason."""

    def __init__(self, score: Score) -> None:
        self._score = score
        #: A graph takes no more executions than it was compiled for.
        self._places = asyncio.Semaphore(IN_FLIGHT)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, to its end."""
        try:
            while line := await reader.readline():
                writer.write(f"{await self.answer(line.decode())}\n".encode())
                await writer.drain()
        finally:
            writer.close()

    async def answer(self, text: str) -> str:
        """The answer for a client."""
        try:
            async with self._places:
                return str(await self._score(text))
        except ValueError as error:
            return f"error: {error.args[0] if error.args else error}".splitlines()[0]


async def ask(path: Path, texts: list[str]) -> tuple[list[str], list[float]]:
    """A client: send the texts one by one; the answers, and the seconds that each took."""
    reader, writer = await asyncio.open_unix_connection(path)
    answers, seconds = [], []
    for text in texts:
        begun = time.perf_counter()
        writer.write(f"{text}\n".encode())
        answers.append((await reader.readline()).decode().rstrip("\n"))
        seconds.append(time.perf_counter() - begun)
    writer.close()
    return answers, seconds


async def converse(score: Score, texts: list[list[str]]) -> tuple[list[list[str]], Latency]:
    """Start a server, and a client for each list of texts; the answers to each, and the latency of all."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "socket"
        server = await asyncio.start_unix_server(Server(score).serve, path)
        conversations = await asyncio.gather(*[ask(path, of_one) for of_one in texts])
        server.close()
        await server.wait_closed()
    return [answers for answers, _ in conversations], summarize([each for _, seconds in conversations for each in seconds])


def make_texts(requests: int, clients: int) -> list[list[str]]:
    """The requests of each client; every client begins with a text that has no words."""
    words = [*WEIGHTS, "and", "so", "on"]

    def text(client: int, number: int) -> str:
        return " ".join(words[(client + number + place) % len(words)] for place in range(1 + number % 5))

    return [["", *(text(client, number) for number in range(max(1, requests // clients)))] for client in range(clients)]


def expect(text: str) -> str:
    """The right answer."""
    return str(sum(WEIGHTS.get(word, 0) for word in text.split()))


def check(answers: list[list[str]], texts: list[list[str]]) -> None:
    """Raise AssertionError unless every client got the right answers, in order, and an error for its first text."""
    for got, sent in zip(answers, texts, strict=True):
        assert got[0].startswith("error: ") and "no score" in got[0], got[0]
        assert got[1:] == [expect(text) for text in sent[1:]]


def compare(requests: int = 2000, clients: int = 16) -> Comparison:
    """Measure both ways with the same actors: what a client waits for its answer."""
    tokenizer, scorer = Tokenizer.remote(), Scorer.remote(WEIGHTS)
    texts = make_texts(requests, clients)

    async def call(text: str) -> int:
        result: int = await scorer.score.remote(tokenizer.words.remote(text))
        return result

    answers, calls = asyncio.run(converse(call, texts))
    check(answers, texts)

    with InputNode() as node:
        graph = scorer.score.bind(tokenizer.words.bind(node))
    compiled = graph.experimental_compile(enable_asyncio=True, _max_inflight_executions=IN_FLIGHT)

    async def execute(text: str) -> int:
        result: int = await (await compiled.execute_async(text))
        return result

    try:
        answers, graph_latency = asyncio.run(converse(execute, texts))
        check(answers, texts)
    finally:
        compiled.teardown()
    return Comparison(f"asyncio server, {clients} clients", calls, graph_latency)


def main() -> None:
    """Run the example in a session of its own."""
    with mray.init():
        print_comparisons([compare(*map(int, sys.argv[1:3]))])


if __name__ == "__main__":
    main()
