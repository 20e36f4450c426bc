"""Ray between machines, mray within: each machine of a cluster has a replica of a model, and in it a compiled graph of mray's own.

    python -m mray.examples.cluster [tokens]                            on this machine, by mray alone
    MRAY_ADDRESS=ray:auto python -m mray.examples.cluster [tokens]      on every machine of a Ray cluster

    driver --- prompts, texts ---> Replica on machine 1 ---- token ----> Stage ---- state ----> Stage
       |           Ray                  ^                                                         |  mray: shared memory,
       |                                +------------------------- next token -------------------+   or the GPU's
       +-------------------------> Replica on machine 2 ...

Each token needs the previous one, so every token pays for a step through the stages. The steps are a compiled graph of a session on
the replica's machine, while prompts and texts, which are few, travel between machines by Ray. The stages compute on the GPU if the
machine has one.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from typing import Any

import numpy as np

import mray
from mray.dag import InputNode
from mray.examples import Comparison, Latency, print_comparisons, summarize
from mray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

STAGES = 2
WIDTH = 128
VOCABULARY = 1000
PROMPTS = ((7, 11, 13), (2, 3, 5), (17, 19, 23), (29, 31, 37))


@mray.remote
class Stage:
    """One part of the model: the first turns a token into a state, the last a state into a token."""

    def __init__(self, number: int, device: str) -> None:
        draw = np.random.default_rng(number)
        shapes = (VOCABULARY, WIDTH), (WIDTH, WIDTH), (WIDTH, VOCABULARY)
        arrays: list[Any] = [draw.standard_normal(shape, dtype=np.float32) for shape in shapes]
        self.embedding, self.weights, self.head = arrays if device == "cpu" else _on_gpu(arrays)

    def begin(self, token: int) -> Any:
        return self.forward(self.embedding[token])

    def forward(self, state: Any) -> Any:
        mixed = state @ self.weights
        return mixed / abs(mixed).max()

    def end(self, state: Any) -> int:
        return int((self.forward(state) @ self.head).argmax())


def _on_gpu(arrays: list[Any]) -> list[Any]:
    import torch  # noqa: PLC0415  (optional: without a GPU it is not needed)

    return [torch.from_numpy(array).cuda() for array in arrays]


@mray.remote
class Replica:
    """A model on one machine."""

    def __init__(self, device: str) -> None:
        # On a cluster: this machine's own session; else the one that runs already.
        mray.init(address="local", num_cpus=STAGES, ignore_reinit_error=True, logging_level="ERROR")
        gpu: dict[str, Any] = {} if device == "cpu" else {"num_gpus": 1 / STAGES}
        self.stages = [Stage.options(num_cpus=0, **gpu).remote(number, device) for number in range(STAGES)]
        first, *between, last = self.stages
        with InputNode() as token:
            state = first.begin.bind(token).with_tensor_transport()
            for stage in between:
                state = stage.forward.bind(state).with_tensor_transport()
            self.graph = last.end.bind(state).experimental_compile()

    def write(self, prompt: tuple[int, ...], tokens: int) -> tuple[list[int], list[float]]:
        """Return `tokens` tokens that follow the prompt, and the seconds that each took."""
        return self._generate(prompt, tokens, lambda token: mray.get(self.graph.execute(token)))

    def write_by_calls(self, prompt: tuple[int, ...], tokens: int) -> tuple[list[int], list[float]]:
        def step(token: int) -> int:
            state: Any = self.stages[0].begin.remote(token)
            for stage in self.stages[1:-1]:
                state = stage.forward.remote(state)
            following: int = mray.get(self.stages[-1].end.remote(state))
            return following

        return self._generate(prompt, tokens, step)

    @staticmethod
    def _generate(prompt: tuple[int, ...], tokens: int, step: Any) -> tuple[list[int], list[float]]:
        text, seconds = [], []
        token = sum(map(step, prompt)) % VOCABULARY
        for _ in range(tokens):
            begun = time.perf_counter()
            token = step(token)
            seconds.append(time.perf_counter() - begun)
            text.append(token)
        return text, seconds


def start_replicas(on_cluster: bool) -> list[Any]:
    """Start one replica on each machine."""
    replicas = []
    for machine in mray.nodes():
        if not machine["Alive"]:
            continue
        gpu = machine["Resources"].get("GPU", 0) >= 1 and has_gpu()
        # On a cluster the replica reserves the GPU; else its stages do.
        place = NodeAffinitySchedulingStrategy(machine["NodeID"], soft=False)
        options: dict[str, Any] = {"num_gpus": 1} if gpu and on_cluster else {}
        replicas.append(Replica.options(scheduling_strategy=place, **options).remote("cuda" if gpu else "cpu"))
    return replicas


def has_gpu() -> bool:
    """Whether the stages can use a GPU, which needs torch."""
    return importlib.util.find_spec("torch") is not None


def compare(tokens: int = 200, on_cluster: bool = False) -> Comparison:
    """Write texts both ways, which must be the same; seconds are those of a token."""
    replicas = start_replicas(on_cluster)

    def write(method: str) -> tuple[list[list[int]], Latency]:
        turns = [getattr(replicas[number % len(replicas)], method) for number in range(len(PROMPTS))]
        written = mray.get([turn.remote(prompt, tokens) for turn, prompt in zip(turns, PROMPTS, strict=True)])
        return [text for text, _seconds in written], summarize([second for _text, seconds in written for second in seconds])

    write("write")  # the first steps of a GPU are slow
    texts, graph = write("write")
    others, calls = write("write_by_calls")
    assert texts == others
    assert all(len(text) == tokens for text in texts)
    return Comparison(f"replicas on {len(replicas)} machine(s)", calls, graph)


def main() -> None:
    """Run the example on the engine that `MRAY_ADDRESS` names."""
    tokens = int(sys.argv[1]) if sys.argv[1:] else 200
    with mray.init() as context:
        print_comparisons([compare(tokens, on_cluster=context["address"] != "local")])


if __name__ == "__main__":
    main()
