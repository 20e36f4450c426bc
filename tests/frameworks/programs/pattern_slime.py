"""As slime: one placement group whose bundles are sorted by probing actors, a lock as an actor, rollouts by reference, visible GPUs."""

import os

import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

VISIBLE = {"env_vars": {"RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1"}}


@ray.remote(num_gpus=1)
class Probe:
    def where(self):
        return ray.util.get_node_ip_address(), ray.get_gpu_ids()[0]


@ray.remote
class Lock:
    def __init__(self):
        self.locked = False

    def acquire(self):
        if self.locked:
            return False
        self.locked = True
        return True

    def release(self):
        assert self.locked
        self.locked = False


class Box:
    def __init__(self, ref):
        self._ref = ref

    @property
    def inner(self):
        return ray.get(self._ref)


class Trainer:
    def __init__(self, lock):
        self.lock, self.seen = lock, []

    def init(self):
        return os.environ.get("CUDA_VISIBLE_DEVICES"), ray.get_runtime_context().get_accelerator_ids()["GPU"]

    def train(self, rollout, boxes):
        self.seen.append(boxes[len(self.seen) % len(boxes)].inner)
        return rollout, self.seen[-1]

    def update(self):
        while not ray.get(self.lock.acquire.remote()):
            pass
        ray.get(self.lock.release.remote())
        return True


@ray.remote
class Rollout:
    def generate(self, rollout):
        return [Box(ray.put([rollout, part])) for part in range(2)]


def main():
    ray.init(num_cpus=4, num_gpus=2)
    group = placement_group([{"GPU": 1, "CPU": 1}] * 2, strategy="PACK")
    ray.get(group.ready())
    probes = [Probe.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group, at)).remote() for at in range(2)]
    places = ray.get([probe.where.remote() for probe in probes])
    for probe in probes:
        ray.kill(probe)
    order = sorted(range(2), key=lambda at: places[at])
    assert sorted(gpu for _address, gpu in places) == [0, 1]
    lock = Lock.options(num_cpus=0, num_gpus=0).remote()
    trainers = [
        ray.remote(num_gpus=0.4, num_cpus=0.4, runtime_env=VISIBLE)(Trainer)
        .options(scheduling_strategy=PlacementGroupSchedulingStrategy(group, at))
        .remote(lock)
        for at in order
    ]
    assert ray.get([trainer.init.remote() for trainer in trainers]) == [
        (os.environ.get("CUDA_VISIBLE_DEVICES"), [str(rank)]) for rank in (0, 1)
    ]
    rollout = Rollout.options(num_cpus=1, num_gpus=0).remote()
    for at in range(3):
        boxes = rollout.generate.remote(at)
        assert ray.get([trainer.train.remote(at, boxes) for trainer in trainers]) == [(at, [at, at % 2])] * 2
        assert ray.get([trainer.update.remote() for trainer in trainers]) == [True, True]
    ray.shutdown()


if __name__ == "__main__":
    main()
    print("done")
