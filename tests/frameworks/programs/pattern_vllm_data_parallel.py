"""As vLLM's engines in parallel over data, on Ray: a placement group for each on the node of the master's address, and its second executor:
workers whose endless method says by its error that they are gone, which a thread waits for.
"""

import os
import socket
import threading

import ray
from ray._private.state import available_resources_per_node, total_resources_per_node
from ray.runtime_env import RuntimeEnv
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from ray.util.state import list_nodes

ENGINES, WORLD = 2, 2


def error_of(call, *args, **options):
    """The error that a call raises, as it has to."""
    try:
        call(*args, **options)
    except Exception as error:
        return error
    raise AssertionError(f"{call} raises nothing")


def own_address():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(("8.8.8.8", 80))
        except OSError:
            return "127.0.0.1"
        return sock.getsockname()[0]


class Engine:
    def __init__(self, rank):
        self.rank = rank

    def wait_for_init(self):
        return self.rank, ray.util.get_current_placement_group().bundle_count, os.environ["VLLM_SAID"]


class Worker:
    def __init__(self, rank):
        self.rank, self.go = rank, threading.Event()

    def store(self):
        """The address at which the others meet."""
        self.server = socket.create_server((ray.util.get_node_ip_address(), 0))
        return "tcp://{}:{}".format(*self.server.getsockname())

    def start(self, address, variables):
        for name, value in variables.items():
            os.environ.setdefault(name, value)
        host, _colon, port = address.removeprefix("tcp://").rpartition(":")
        with socket.create_connection((host, int(port))):
            return ray.get_runtime_context().get_accelerator_ids()["GPU"], os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ["HF_TOKEN"]

    def fail(self):
        self.go.set()

    def run(self):
        self.go.wait()
        raise RuntimeError("the worker fails")


def engines(address):
    key = f"node:{address}"
    (node,) = sorted(available_resources_per_node().values(), key=lambda each: key not in each)
    assert [name for name in node if name.startswith("node:") and name != "node:__internal_head__"] == [key]
    bundles = [{"GPU": 1.0, key: 0.001}] * WORLD + [{"CPU": 1.0}]
    groups = [ray.util.placement_group(bundles, strategy="STRICT_PACK", name=f"dp_rank_{rank}") for rank in range(ENGINES)]
    variables = RuntimeEnv(env_vars={"VLLM_SAID": "yes"})
    made = []
    for rank, group in enumerate(groups):
        place = PlacementGroupSchedulingStrategy(placement_group=group, placement_group_bundle_index=WORLD)
        made.append(ray.remote(Engine).options(scheduling_strategy=place, runtime_env=variables).remote(rank))
    assert ray.get([engine.wait_for_init.remote() for engine in made]) == [(rank, WORLD + 1, "yes") for rank in range(ENGINES)]
    (listed,) = list_nodes(address=ray.get_runtime_context().gcs_address)  # other clusters of this machine do not count
    assert listed.node_ip == address
    assert total_resources_per_node()[listed.node_id]["GPU"] == ENGINES * WORLD
    for engine in made:
        ray.kill(engine)
    for group in groups:
        ray.util.remove_placement_group(group)


def workers():
    group = ray.util.placement_group([{"GPU": 1.0}] * WORLD, strategy="PACK")
    ray.get(group.ready())
    variables = {"env_vars": {"RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1"}}
    made = []
    for rank in range(WORLD):
        place = PlacementGroupSchedulingStrategy(placement_group=group, placement_group_bundle_index=rank)
        options = {"name": f"vllm_worker_{rank}", "num_cpus": 0, "num_gpus": 1, "scheduling_strategy": place, "runtime_env": variables}
        made.append(ray.remote(Worker).options(max_concurrency=2, **options).remote(rank))
    os.environ["HF_TOKEN"] = "of the driver"
    address = ray.get(made[0].store.remote())
    found = ray.get([worker.start.remote(address, {"HF_TOKEN": os.environ["HF_TOKEN"]}) for worker in made])
    assert sorted(gpus[0] for gpus, _visible, _token in found) in (["0", "1"], ["2", "3"]), found
    assert {(visible, token) for _gpus, visible, token in found} == {(None, "of the driver")}, found
    endless = [worker.run.remote() for worker in made]
    seen = []

    def watch():
        ready, _left = ray.wait(endless, num_returns=1)
        seen.extend(endless.index(ref) for ref in ready)

    monitor = threading.Thread(target=watch)
    monitor.start()
    ray.get(made[1].fail.remote())
    monitor.join()
    assert seen == [1]
    error = error_of(ray.get, endless[1])
    assert isinstance(error, RuntimeError) and "the worker fails" in str(error), error
    ray.kill(made[0])
    assert isinstance(error_of(ray.get, endless[0]), ray.exceptions.ActorDiedError)
    ray.kill(made[1])
    ray.util.remove_placement_group(group)


def main():
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    ray.init(num_cpus=4, num_gpus=ENGINES * WORLD, log_to_driver=False)
    engines(own_address())
    workers()
    ray.shutdown()
    print("done")


main()
