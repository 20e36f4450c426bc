"""As vLLM's executor on Ray: workers placed by the driver's address, sorted by their node and GPU, then a graph over two stages."""

import collections
import os
import socket
import threading

import numpy as np

os.environ.setdefault("RAY_CGRAPH_get_timeout", "300")  # as vLLM does; Ray reads it when its graphs are imported

import ray
from ray._private.state import available_resources_per_node
from ray.dag import InputNode, MultiOutputNode
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

TENSOR, PIPELINE = 2, 2
WORLD = TENSOR * PIPELINE


def error_of(call, *args, **options):
    """The error that a call raises, as it has to."""
    try:
        call(*args, **options)
    except Exception as error:
        return error
    raise AssertionError(f"{call} raises nothing")


def own_address():
    """The address of the route out, as vLLM finds it; no packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(("8.8.8.8", 80))
        except OSError:
            return "127.0.0.1"
        return sock.getsockname()[0]


class Wrapper:
    """A worker whose methods are called by name; it gets its rank and its environment after it has been made."""

    def __init__(self, rank):
        self.rank = rank
        self.served = None

    def adjust_rank(self, ranks):
        self.rank = ranks[self.rank]

    def node_ip(self):
        return own_address()

    def node_and_gpus(self):
        context = ray.get_runtime_context()
        return context.get_node_id(), [int(gpu) for gpu in context.get_accelerator_ids()["GPU"]]

    def update_environment(self, everyones):
        os.environ.update(everyones[self.rank])

    def serve(self, host):
        """Rank 0: the place where all meet."""
        self.served = socket.create_server((host, 0))
        return self.served.getsockname()[1]

    def meet(self, host, port):
        if self.rank:
            with socket.create_connection((host, port)) as peer:
                return peer.recv(1)
        for _ in range(WORLD - 1):
            peer, _from = self.served.accept()
            with peer:
                peer.sendall(b"!")
        self.served.close()
        return b"!"

    def load(self):
        self.weight = np.eye(4) * (self.rank + 1)

    def variable(self, name):
        return os.environ.get(name)

    def execute(self, scheduled):
        tokens, hidden = scheduled if isinstance(scheduled, tuple) else (scheduled, None)
        if tokens < 0:
            raise RuntimeError(f"CUDA out of memory at rank {self.rank}")
        if hidden is None:
            return tokens, np.ones((tokens, 4)) @ self.weight
        return {"tokens": (hidden @ self.weight).sum(), "logprobs": np.arange(4)}

    def execute_method(self, method, *args):
        return getattr(self, method)(*args) if isinstance(method, str) else method(self, *args)


class Executor:
    def __init__(self):
        self.group = self.make_group()
        self.workers = [self.make_worker(rank) for rank in range(WORLD)]
        assert set(ray.get([worker.node_ip.remote() for worker in self.workers])) == {own_address()}
        self.everywhere("adjust_rank", {rank: rank for rank in range(WORLD)})
        gpus = collections.defaultdict(list)
        for node, own in self.everywhere("node_and_gpus"):
            gpus[node].extend(own)
        (all_of_node,) = gpus.values()
        assert sorted(all_of_node) == [0, 1, 2, 3]
        visible = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, sorted(all_of_node))), "VLLM_SAID": "yes"}
        self.everywhere("update_environment", [visible] * WORLD)
        assert set(self.everywhere("variable", "CUDA_VISIBLE_DEVICES")) == {"0,1,2,3"}
        port = ray.get(self.workers[0].serve.remote(own_address()))
        assert self.everywhere("meet", own_address(), port) == [b"!"] * WORLD
        self.everywhere("load")

    def make_group(self) -> PlacementGroup:
        here, node = ray.util.get_node_ip_address(), ray.get_runtime_context().get_node_id()
        assert here == own_address(), (here, own_address())
        assert available_resources_per_node()[node]["GPU"] == WORLD
        bundles = [{"GPU": 1.0} for _ in range(WORLD)]
        bundles[0][f"node:{here}"] = 0.001
        group = ray.util.placement_group(bundles, strategy="PACK")
        ref = group.ready()
        assert ray.wait([ref], timeout=60)[0]
        ray.get(ref, timeout=0)
        table = ray.util.placement_group_table(group)
        assert set(table["bundles_to_node_id"].values()) == {node}
        assert {each["NodeID"]: each["NodeManagerAddress"] for each in ray.nodes()}[node] == here
        return group

    def make_worker(self, rank):
        place = PlacementGroupSchedulingStrategy(
            placement_group=self.group, placement_group_capture_child_tasks=True, placement_group_bundle_index=rank
        )
        return ray.remote(num_cpus=0, num_gpus=1, scheduling_strategy=place)(Wrapper).remote(rank)

    def everywhere(self, method, *args, timeout=None):
        return ray.get([worker.execute_method.remote(method, *args) for worker in self.workers], timeout=timeout)

    def compile(self):
        with InputNode() as scheduled:
            outputs = [scheduled] * TENSOR
            for stage in range(PIPELINE):
                of_stage = self.workers[stage * TENSOR : (stage + 1) * TENSOR]
                outputs = [worker.execute.bind(outputs[at]) for at, worker in enumerate(of_stage)]
            graph = MultiOutputNode(outputs)
        return graph.experimental_compile()


def main():
    ray.init(num_cpus=4, num_gpus=WORLD, log_to_driver=False)
    executor = Executor()
    assert executor.everywhere(lambda worker, factor: worker.rank * factor, 3) == [0, 3, 6, 9]
    gate = threading.Event
    error = error_of(executor.everywhere, lambda worker: gate().wait(2), timeout=0.2)
    assert isinstance(error, ray.exceptions.GetTimeoutError), error
    error = error_of(executor.everywhere, "no_such_method")
    assert isinstance(error, AttributeError) and isinstance(error, ray.exceptions.RayTaskError), error
    graph = executor.compile()
    assert [graph.execute(tokens)[0].get()["tokens"] for tokens in (1, 2)] == [12, 24]
    assert len(ray.get(graph.execute(3))) == TENSOR
    error = error_of(graph.execute(-1)[0].get)
    assert isinstance(error, RuntimeError) and "out of memory" in str(error), error
    assert graph.execute(4)[0].get()["tokens"] == 48
    assert executor.everywhere("variable", "VLLM_SAID")[3] == "yes"  # a call beside the graph
    graph.teardown()
    for worker in executor.workers:
        ray.kill(worker)
    ray.util.remove_placement_group(executor.group)
    while ray.available_resources().get("GPU", 0) < WORLD:
        pass
    ray.shutdown()
    print("done")


main()
