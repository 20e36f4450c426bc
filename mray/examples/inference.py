"""An executor for inference: drives the workers of a model that is split over several processes.

    python -m mray.examples.inference [steps] [workers]

    driver ── a step's input ──▶ rank 0, rank 1, ... of stage 0 ──▶ rank 0, rank 1, ... of stage 1 ── output of rank 0 ──▶ driver

Every rank of every stage gets the step's input, a rank of a later stage also the output of the same rank of the previous stage; the
output of the last stage's rank 0 is returned as soon as it has come, before the other ranks have finished; their errors are raised by a
later step. Other requests to workers go through a second graph.
`vllm_executor` runs vLLM on this.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import mray
from mray.dag import InputNode, MultiOutputNode
from mray.examples import Comparison, measure, print_comparisons


@mray.remote
class Rank:
    """The process of one worker."""

    def __init__(self, make: Callable[..., Any], stage: int, rank: int) -> None:
        self.worker = make(stage, rank)

    def step(self, request: Any, before: Any = None) -> Any:
        """`before`: the result of the same rank of the previous stage."""
        return self.worker.step(request, before)

    def call(self, request: tuple[str, tuple[Any, ...], dict[str, Any]]) -> Any:
        name, args, kwargs = request
        return getattr(self.worker, name)(*args, **kwargs)


class InferenceExecutor:
    """`stages` times `width` workers; ``make(stage, rank)`` creates one in its process, an object with ``step(request, before)``.

    `in_flight` steps may run concurrently; `options` are those of the actors (``num_gpus=1``). When a worker dies, every wait ends
    with an ActorDiedError.
    """

    def __init__(self, make: Callable[..., Any], width: int, stages: int = 1, *, in_flight: int = 4, **options: Any) -> None:
        self.ranks = [[Rank.options(**options).remote(make, stage, rank) for rank in range(width)] for stage in range(stages)]
        with InputNode() as request:
            outputs: list[Any] = [None] * width
            for stage in self.ranks:
                outputs = [rank.step.bind(request, before) for rank, before in zip(stage, outputs, strict=True)]
        self._steps = MultiOutputNode(outputs).experimental_compile(_max_inflight_executions=in_flight)
        self._in_flight = in_flight
        #: The outputs of other ranks, of the latest steps: read for their errors alone.
        self._others: deque[list[Any]] = deque()
        with InputNode() as request:
            answers = [rank.call.bind(request) for stage in self.ranks for rank in stage]
        self._calls = MultiOutputNode(answers).experimental_compile()

    def step(self, request: Any) -> Any:
        """Begin a step; returns the ref of rank 0's output. Raises the error of another rank of an earlier step.

        Waits for ranks that are `in_flight` steps behind rank 0.
        """
        others = self._others
        if len(others) >= self._in_flight:
            mray.get(others.popleft())
        output, *rest = self._steps.execute(request)
        if rest:
            others.append(rest)
        return output

    def call(self, method: str, *args: Any, timeout: float | None = None, **kwargs: Any) -> list[Any]:
        """Results by stage and rank. RayChannelTimeoutError after `timeout` seconds."""
        results: list[Any] = mray.get(self._calls.execute((method, args, kwargs)), timeout=timeout)
        return results

    def shutdown(self) -> None:
        self._steps.teardown()
        self._calls.teardown()
        for stage in self.ranks:
            for rank in stage:
                mray.kill(rank)


class FakeWorker:
    """Sleeps as long as a step of a model would take."""

    def __init__(self, stage: int, rank: int, seconds: float = 0.0) -> None:
        self.place, self.seconds = (stage, rank), seconds

    def step(self, request: Any, before: Any) -> list[tuple[int, int]]:
        """Return the ranks that the step has passed."""
        if self.seconds:
            time.sleep(self.seconds)
        return [*(before or ()), self.place]


def compare(steps: int = 200, workers: int = 2) -> Comparison:
    """Measure a step by calls, and through the graph, with workers that compute nothing."""
    executor = InferenceExecutor(FakeWorker, workers, num_cpus=0)
    request = {"requests": list(range(100)), "blocks": list(range(500))}
    (ranks,) = executor.ranks
    assert mray.get(executor.step(request)) == [(0, 0)]
    calls = measure(lambda: mray.get([rank.step.remote(request) for rank in ranks]), steps)
    graph = measure(lambda: executor.step(request).get(), steps)
    executor.shutdown()
    return Comparison(f"inference, {workers} workers", calls, graph)


def main() -> None:
    """Run the example in its own session."""
    with mray.init():
        print_comparisons([compare(*map(int, sys.argv[1:3]))])


if __name__ == "__main__":
    main()
