"""As AReaL: a scheduler that makes workers by a specification, calls engines in them by name, and tells which of them has failed."""

import asyncio

import ray
import ray.exceptions
from ray.runtime_env import RuntimeEnv
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy


def specification(cpu: int, gpu: float, memory: int) -> dict:
    return {"num_cpus": cpu, "num_gpus": gpu, "memory": memory}


@ray.remote
class Host:
    def __init__(self, worker_id):
        self.worker_id, self.engines, self.env = worker_id, {}, {}

    def ping(self):
        return "ok"

    def set_env(self, env):
        self.env.update(env)

    def create_engine(self, cls, name, *args):
        self.engines[name] = cls(*args)
        return name

    async def call(self, name, method, *args, **kwargs):
        found = getattr(self.engines[name], method)(*args, **kwargs)
        return await found if asyncio.iscoroutine(found) else found


class Engine:
    def __init__(self, start):
        self.total = start

    def add(self, value, times=1):
        self.total += value * times
        return self.total

    async def slow(self):
        await asyncio.sleep(60)

    def fail(self):
        raise ValueError("no such batch")


def main():
    ray.init(num_cpus=4, num_gpus=2)
    group: PlacementGroup = placement_group([{"CPU": 1, "GPU": 1, "memory": 1 << 20}] * 2, strategy="PACK")
    ready, waiting = ray.wait([group.ready()], timeout=60)
    assert ready and not waiting
    hosts = [
        Host.options(
            **specification(1, 1, 1 << 20),
            name=f"host/{at}",
            runtime_env=RuntimeEnv(env_vars={"HOST": str(at)}),
            scheduling_strategy=PlacementGroupSchedulingStrategy(group, at, placement_group_capture_child_tasks=True),
        ).remote(f"host/{at}")
        for at in range(2)
    ]
    assert ray.get([host.ping.remote() for host in hosts]) == ["ok", "ok"]
    assert ray.get([host.create_engine.remote(Engine, "engine", at) for at, host in enumerate(hosts)]) == ["engine"] * 2
    assert ray.get([host.call.remote("engine", "add", 2, times=3) for host in hosts]) == [6, 7]
    try:
        ray.get(hosts[0].call.remote("engine", "fail"))
    except ray.exceptions.RayTaskError as error:
        caught = error
    assert isinstance(caught, ValueError)
    assert "no such batch" in str(caught)
    slow = hosts[0].call.remote("engine", "slow")
    try:
        ray.get(slow, timeout=0.1)
    except ray.exceptions.GetTimeoutError:
        ray.cancel(slow)
    try:
        ray.get(slow, timeout=60)
    except ray.exceptions.TaskCancelledError:
        pass
    ray.kill(hosts[1], no_restart=True)
    failed = []
    for at, host in enumerate(hosts):
        try:
            ray.get(host.ping.remote(), timeout=60)
        except (ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError):
            failed.append(at)
    assert failed == [1]
    remove_placement_group(group)
    ray.shutdown()


if __name__ == "__main__":
    main()
    print("done")
