"""As verl's single controller: pools of bundles sorted by node, a worker for each bundle, methods bound to a dispatch of data."""

import socket

import ray
from ray._private.runtime_env.constants import RAY_JOB_CONFIG_JSON_ENV_VAR
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

MAGIC = "dispatch"


def register(mode):
    def mark(function):
        setattr(function, MAGIC, mode)
        return function

    return mark


class Worker:
    def __init__(self, offset):
        import os

        self.rank, self.size, self.offset = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), offset
        self.master = os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]

    def where(self):
        return self.rank, self.size, self.master, ray.get_gpu_ids()

    @register("split")
    def add(self, values):
        return [value + self.offset for value in values]

    @register("all")
    def scale(self, factor):
        self.offset *= factor
        return self.offset


class Group:
    def __init__(self, cls, groups, name, *args):
        nodes = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes()}
        table = ray._private.state.state.placement_group_table
        groups = sorted(groups, key=lambda group: nodes[table(group.id)["bundles_to_node_id"][0]])
        bundles = [(group, bundle) for group in groups for bundle in range(group.bundle_count)]
        with socket.socket() as sock:
            sock.bind(("", 0))
            env = {"WORLD_SIZE": str(len(bundles)), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(sock.getsockname()[1])}
        self.workers = [
            cls.options(
                name=f"{name}_{rank}",
                num_gpus=0.5,
                runtime_env={"env_vars": {**env, "RANK": str(rank)}},
                scheduling_strategy=PlacementGroupSchedulingStrategy(group, bundle),
            ).remote(*args)
            for rank, (group, bundle) in enumerate(bundles)
        ]
        user_class = cls.__ray_metadata__.modified_class
        for method, mode in ((each, getattr(getattr(user_class, each), MAGIC, None)) for each in dir(user_class)):
            if mode is not None:
                setattr(self, method, lambda data, method=method, mode=mode: self._call(method, mode, data))

    def _call(self, method, mode, data):
        share = len(data) // len(self.workers) if mode == "split" else 0
        parts = [data[rank * share : (rank + 1) * share] if mode == "split" else data for rank in range(len(self.workers))]
        found = ray.get([getattr(worker, method).remote(part) for worker, part in zip(self.workers, parts, strict=True)])
        return [value for part in found for value in part] if mode == "split" else found


def main():
    ray.init(num_cpus=4, num_gpus=4, runtime_env={"env_vars": {"TOKENIZERS_PARALLELISM": "true"}})
    assert RAY_JOB_CONFIG_JSON_ENV_VAR == "RAY_JOB_CONFIG_JSON_ENV_VAR"
    groups = [placement_group([{"CPU": 1, "GPU": 1}] * 2, strategy="STRICT_PACK") for _ in range(2)]
    ray.get([group.ready() for group in groups])
    group = Group(ray.remote(Worker), groups, "actor", 10)
    where = ray.get([worker.where.remote() for worker in group.workers])
    assert [each[:2] for each in where] == [(rank, 4) for rank in range(4)]
    assert len({each[2] for each in where}) == 1
    assert len({each[3][0] for each in where}) == 4
    assert group.add(list(range(8))) == list(range(10, 18))
    assert group.scale(2) == [20] * 4
    again = [ray.get_actor(f"actor_{rank}") for rank in range(4)]
    assert ray.get([worker.add.remote([1]) for worker in again]) == [[21]] * 4
    future = group.workers[0].add.remote(ray.put([5]))
    assert ray.wait([future]) == ([future], [])
    ray.kill(again[0])
    try:
        ray.get(group.workers[0].add.remote([1]))
    except ray.exceptions.RayActorError as error:
        died = error.actor_id
    assert died == group.workers[0]._actor_id.hex()
    ray.shutdown()


if __name__ == "__main__":
    main()
    print("done")
