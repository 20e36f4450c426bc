"""As OpenRLHF: models in groups of actors that share GPUs by fractions, an engine that gets the session's address, results by reference."""

import os

import ray
from ray.util.placement_group import placement_group, placement_group_table
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy


@ray.remote
class Engine:
    async def start(self):
        if not os.environ.get("RAY_ADDRESS"):
            os.environ["RAY_ADDRESS"] = ray._private.worker.global_worker.gcs_client.address
        context = ray.init(address=os.environ["RAY_ADDRESS"], ignore_reinit_error=True)
        return context["address"] == os.environ["RAY_ADDRESS"], ray.get_gpu_ids()

    async def generate(self, prompts):
        return [prompt[::-1] for prompt in prompts]


class Model:
    def __init__(self, size, rank, address, port):
        self.size, self.rank = size, rank
        self.address = address or ray._private.services.get_node_ip_address().strip("[]")
        self.port = port or 29500
        self.gpu = int(ray.get_gpu_ids()[0])

    def master(self):
        return self.address, self.port

    def fit(self, refs):
        return self.rank + sum(len(text) for text in ray.get(refs[self.rank]))


class Critic(Model):
    def fit(self, refs):
        return -super().fit(refs)


class Group:
    def __init__(self, size, cls, group, share):
        def made(rank, address, port):
            strategy = PlacementGroupSchedulingStrategy(placement_group=group, placement_group_bundle_index=rank)
            return cls.options(num_cpus=share, num_gpus=share, scheduling_strategy=strategy).remote(size, rank, address, port)

        first = made(0, None, None)
        self.actors = [first, *(made(rank, *ray.get(first.master.remote())) for rank in range(1, size))]

    def each(self, method, *args):
        return [getattr(actor, method).remote(*args) for actor in self.actors]


def main():
    ray.init(num_cpus=4, num_gpus=2)
    group = placement_group([{"GPU": 1, "CPU": 1}] * 2, strategy="PACK")
    ray.get(group.ready())
    table = placement_group_table(group)
    assert table["state"] == "CREATED" and len(set(table["bundles_to_node_id"].values())) == 1
    policy, critic = (Group(2, ray.remote(each), group, 0.2) for each in (Model, Critic))
    engines = [
        Engine.options(num_cpus=0, num_gpus=0.2, scheduling_strategy=PlacementGroupSchedulingStrategy(group, rank)).remote()
        for rank in (0, 1)
    ]
    started = ray.get([engine.start.remote() for engine in engines])
    assert [same for same, _gpus in started] == [True, True] and sorted(gpus[0] for _same, gpus in started) == [0, 1]
    texts = [engine.generate.remote(["abc", "de"]) for engine in engines]
    assert ray.get(policy.each("fit", texts) + critic.each("fit", texts)) == [5, 6, -5, -6]
    assert len(set(ray.get(policy.each("master") + critic.each("master")))) == 1
    ray.shutdown()


if __name__ == "__main__":
    main()
    print("done")
