"""As SkyRL: the driver's work in a task, trainers by rank in bundles, generators that are awaited, a queue between both."""

import asyncio

import ray
from ray.util.placement_group import PlacementGroup, placement_group
from ray.util.queue import Queue
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy


def wait_until_ready(group: PlacementGroup, seconds: float) -> None:
    try:
        ray.get(group.ready(), timeout=seconds)
    except ray.exceptions.GetTimeoutError as error:
        raise RuntimeError(f"no room for {group.bundle_specs}: {ray.cluster_resources()}") from error


@ray.remote(num_cpus=0)
class Trainer:
    def __init__(self, rank):
        self.rank, self.weights = rank, 1.0

    async def step(self, batch):
        await asyncio.sleep(0)
        self.weights += sum(batch)
        return {"rank": self.rank, "weights": self.weights}


@ray.remote(num_cpus=0, max_concurrency=8)
class Generator:
    def __init__(self):
        self.paused = asyncio.Event()
        self.paused.set()
        self.version = 0

    async def generate(self, prompt):
        await self.paused.wait()
        return prompt + self.version

    async def load(self, version):
        self.paused.clear()
        self.version = version
        self.paused.set()


async def train(trainers, generators, queue):
    async def produce():
        for at in range(4):
            values = await asyncio.gather(*(each.generate.remote(at) for each in generators))
            await queue.put_async(values)

    producer = asyncio.create_task(produce())
    found = []
    for version in range(1, 5):
        batch = await queue.get_async()
        found.append(await asyncio.gather(*(trainer.step.remote(batch) for trainer in trainers)))
        await asyncio.gather(*(each.load.remote(0 * version) for each in generators))
    await producer
    return [[each["weights"] for each in step] for step in found]


@ray.remote(num_cpus=1)
def entrypoint():
    group = placement_group([{"CPU": 1}] * 2, strategy="PACK")
    wait_until_ready(group, 60)
    strategies = [PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=rank) for rank in (0, 1)]
    trainers = [Trainer.options(scheduling_strategy=each).remote(rank) for rank, each in enumerate(strategies)]
    generators = [Generator.remote() for _ in range(2)]
    queue = Queue(maxsize=1)
    assert queue.actor is not None
    return asyncio.run(train(trainers, generators, queue))


def main():
    ray.init(num_cpus=4, runtime_env={"env_vars": {"STEP": "1"}})
    assert ray.get(entrypoint.remote()) == [[1.0, 1.0], [3.0, 3.0], [7.0, 7.0], [13.0, 13.0]]
    impossible = placement_group([{"CPU": 64}])
    try:
        wait_until_ready(impossible, 0.2)
    except RuntimeError as error:
        told = str(error)
    assert "no room" in told
    ray.util.remove_placement_group(impossible)
    ray.shutdown()


if __name__ == "__main__":
    main()
    print("done")
