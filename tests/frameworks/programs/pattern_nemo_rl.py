"""As NeMo-RL: a virtual cluster over placement groups, environments by worker, memory by Ray's command, a module that is reloaded."""

import importlib

import ray
import ray._private.runtime_env.packaging as packaging
from ray._private.runtime_env import nsight
from ray.scripts.scripts import memory_summary
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy


@ray.remote(num_cpus=0)
def address_and_port():
    import socket

    with socket.socket() as sock:
        sock.bind(("", 0))
        return ray._private.services.get_node_ip_address(), sock.getsockname()[1]


@ray.remote(num_gpus=1)
class GpuOf:
    def get(self):
        return ray.get_gpu_ids()[0]


class Cluster:
    def __init__(self, counts):
        self.groups = [
            placement_group([{"CPU": 1, "GPU": 1}] * count, strategy="STRICT_PACK", name=f"group-{at}") for at, count in enumerate(counts)
        ]
        ray.get([group.ready() for group in self.groups], timeout=120)

    def sorted_bundles(self, group):
        actors = [
            GpuOf.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group, at)).remote() for at in range(group.bundle_count)
        ]
        gpus = ray.get([actor.get.remote() for actor in actors])
        for actor in actors:
            ray.kill(actor)
        return [at for _gpu, at in sorted(zip(gpus, range(len(gpus)), strict=True))]

    def shutdown(self):
        for group in self.groups:
            remove_placement_group(group)


class PolicyWorker:
    def __init__(self, rank, size):
        self.rank, self.size = rank, size

    def __repr__(self):
        return f"{type(self).__qualname__}[rank={self.rank}]"

    def shard(self, data):
        return data[self.rank :: self.size]


def main():
    with open(nsight.__file__) as file:
        assert file.read(1)
    ray.init(num_cpus=4, num_gpus=3, log_to_driver=True, include_dashboard=False)
    assert importlib.reload(packaging) is packaging
    assert "Plasma memory usage" in memory_summary(stats_only=True, num_entries=5)
    cluster = Cluster([2, 1])
    assert [placement_group_table(group)["name"] for group in cluster.groups] == ["group-0", "group-1"]
    order = [(group, at) for group in cluster.groups for at in cluster.sorted_bundles(group)]
    host, port = ray.get(address_and_port.remote())
    workers = [
        ray.remote(PolicyWorker)
        .options(
            num_gpus=1,
            name=f"policy-{rank}",
            runtime_env={"env_vars": {"MASTER_ADDR": host, "MASTER_PORT": str(port), "RANK": str(rank)}},
            scheduling_strategy=PlacementGroupSchedulingStrategy(group, at),
        )
        .remote(rank, len(order))
        for rank, (group, at) in enumerate(order)
    ]
    data = ray.put(list(range(7)))
    assert ray.get([worker.shard.remote(data) for worker in workers]) == [[0, 3, 6], [1, 4], [2, 5]]
    cluster.shutdown()
    ray.shutdown()


if __name__ == "__main__":
    main()
    print("done")
