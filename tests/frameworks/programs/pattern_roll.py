"""As ROLL: clusters of named workers in a namespace, a storage that is made once, Ray's spans and timers, a monitor derived from Ray's."""

import ray
from ray._private import profiling
from ray._private.async_compat import has_async_methods
from ray._private.log_monitor import WORKER_LOG_PATTERN, LogFileInfo, LogMonitor, is_proc_alive
from ray._private.worker import RemoteFunctionNoArgs, print_to_stdstream, print_worker_logs
from ray.util.timer import _Timer

NAMESPACE = "roll"


class Monitor(LogMonitor):
    """Never made: it is for clusters that the program starts itself."""

    reads = (WORKER_LOG_PATTERN, LogFileInfo, is_proc_alive, print_to_stdstream, print_worker_logs)


@ray.remote
class Storage:
    def __init__(self):
        self.found = {}

    def put(self, key, value):
        self.found[key] = value

    def get(self, key):
        return self.found.get(key)


class Worker:
    def __init__(self, name, rank):
        self.name, self.rank = name, rank
        self.storage = Storage.options(name="storage", get_if_exists=True, namespace=NAMESPACE, num_cpus=0).remote()

    def setup(self):
        ray.get(self.storage.put.remote(self.name, self.rank))
        return ray.get_runtime_context().get_actor_name()

    async def generate(self, value):
        with profiling.profile("generate"):
            return value * self.rank


class Cluster:
    def __init__(self, name: str, worker_class: RemoteFunctionNoArgs[Worker] | type, size: int):
        self.workers = [
            ray.remote(num_cpus=0)(worker_class)
            .options(name=f"{name}-{rank}", namespace=NAMESPACE, max_concurrency=2, lifetime="detached")
            .remote(f"{name}-{rank}", rank)
            for rank in range(size)
        ]

    def call(self, method: str, *args):
        return ray.get([getattr(worker, method).remote(*args) for worker in self.workers])


def main():
    ray.init(num_cpus=2, namespace=NAMESPACE, ignore_reinit_error=True, log_to_driver=True)
    assert has_async_methods(Worker) and not has_async_methods(Monitor)
    timer = _Timer(window_size=5)
    clusters = [Cluster(name, Worker, 2) for name in ("actor", "reward")]
    for cluster, name in zip(clusters, ("actor", "reward"), strict=True):
        assert cluster.call("setup") == [f"{name}-0", f"{name}-1"]
        with timer:
            assert cluster.call("generate", 3) == [0, 3]
        timer.push_units_processed(n=8)
    assert timer.count == 2 and timer.mean_throughput > 0 and timer.mean_units_processed == 8
    storage = ray.get_actor("storage", namespace=NAMESPACE)
    assert ray.get([storage.get.remote(f"reward-{rank}") for rank in (0, 1)]) == [0, 1]
    names = {each["name"] for each in ray.util.list_named_actors(all_namespaces=True)}
    assert {"storage", "actor-0", "actor-1", "reward-0", "reward-1"} <= names
    for name in sorted(names, reverse=True):  # the storage first: it goes with the worker that has made it
        ray.kill(ray.get_actor(name))
    ray.shutdown()


if __name__ == "__main__":
    main()
    print("done")
