"""As TensorRT-LLM's orchestrator on Ray: a bundle for each node, the first where the driver is, wrappers that make their worker later, and
calls through asyncio and in the thread of a proxy.
"""

import asyncio
import os
import queue
import socket
import threading

import ray
from ray.util.placement_group import get_current_placement_group, placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

NO_MASK = "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"
WORLD, TENSOR = 4, 2


def error_of(call, *args, **options):
    """The error that a call raises, as it has to."""
    try:
        call(*args, **options)
    except Exception as error:
        return error
    raise AssertionError(f"{call} raises nothing")


class Worker:
    def __init__(self, device, name):
        self.device, self.name = device, name

    def submit(self, value):
        return value * 2

    def extended(self, value, more=1):
        return value, more, self.name

    def boom(self):
        raise ValueError("bad request")


@ray.remote
class Wrapper:
    def __init__(self, worker_class, options, rank):
        self.rank, self.make = rank, (worker_class, options)
        self.gpu = int(ray.get_gpu_ids()[0])
        self.host = os.environ["MASTER_ADDR"]

    def serve(self):
        self.server = socket.create_server((self.host, 0))
        return self.server.getsockname()[1]

    def set_up(self, port):
        with socket.create_connection((self.host, port)):
            worker_class, options = self.make
            self.worker = worker_class(self.local_id(self.gpu), **options)

    def report(self):
        return self.gpu, self.worker.device, os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ["TLLM_DISABLE_MPI"], os.environ[NO_MASK]

    def submit(self, value):
        return self.worker.submit(value)

    def call_worker_method(self, name, *args, **options):
        if not hasattr(self.worker, name):
            raise AttributeError(f"the worker has no method {name!r}")
        return getattr(self.worker, name)(*args, **options)

    def __repr__(self):
        return f"Wrapper[rank={self.rank}]"

    @staticmethod
    def local_id(physical):
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        return [int(each) for each in visible.split(",")].index(physical) if visible else physical


def start():
    """Join the cluster that there is, or start one."""
    options = {"include_dashboard": False, "namespace": "trtllm", "ignore_reinit_error": True, "log_to_driver": False}
    options["runtime_env"] = {"env_vars": {NO_MASK: "1"}}
    try:
        ray.init(address="auto", **options)
    except ConnectionError:
        ray.init(num_cpus=6, num_gpus=WORLD, **options)
    return options


def place():
    """The group, and the bundle of each rank."""
    per_node = int(ray.nodes()[0]["Resources"]["GPU"])
    size = min(TENSOR, per_node)
    bundles = [{"GPU": size, "CPU": size} for _ in range(WORLD // size)]
    bundles[0][f"node:{ray.util.get_node_ip_address()}"] = 0.01
    return placement_group(bundles, strategy="PACK"), [rank // size for rank in range(WORLD)]


def make(group, indices):
    env = ray.runtime_env.RuntimeEnv()
    env["env_vars"] = {**os.environ, "TLLM_DISABLE_MPI": "1", "MASTER_ADDR": ray.util.get_node_ip_address(), NO_MASK: "1"}
    made = []
    for rank in range(WORLD):
        strategy = PlacementGroupSchedulingStrategy(placement_group=group, placement_group_bundle_index=indices[rank])
        options = {"num_gpus": 1.0, "runtime_env": env, "scheduling_strategy": strategy}
        made.append(Wrapper.options(**options).remote(Worker, {"name": "engine"}, rank))
    return made


async def meet(workers):
    await asyncio.gather(*[worker.__ray_ready__.remote() for worker in workers])
    port = await workers[0].serve.remote()
    await asyncio.gather(*[worker.set_up.remote(port) for worker in workers])


def proxied(worker):
    """Requests that a loop in a thread of its own sends on, until it is cancelled."""
    answers, loop = queue.Queue(), asyncio.new_event_loop()

    async def main_loop():
        for value in range(3):
            answers.put(await worker.submit.remote(value))
        await asyncio.Event().wait()

    tasks = []

    def run():
        asyncio.set_event_loop(loop)
        tasks.append(loop.create_task(main_loop()))
        try:
            loop.run_until_complete(tasks[0])
        except asyncio.CancelledError:
            answers.put("cancelled")
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    found = [answers.get() for _ in range(3)]
    loop.call_soon_threadsafe(tasks[0].cancel)
    thread.join()
    return [*found, answers.get()]


def main():
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    options = start()
    assert get_current_placement_group() is None
    group, indices = place()
    workers = make(group, indices)
    asyncio.run(meet(workers))
    reported = sorted(ray.get([worker.report.remote() for worker in workers]))
    assert reported == [(gpu, gpu, None, "1", "1") for gpu in range(WORLD)], reported
    assert ray.get([worker.call_worker_method.remote("extended", 3, more=4) for worker in workers]) == [(3, 4, "engine")] * WORLD
    assert isinstance(error_of(getattr, workers[0], "extended"), AttributeError)  # so it is called by name
    error = error_of(ray.get, workers[1].call_worker_method.remote("boom"))
    assert isinstance(error.as_instanceof_cause(), ValueError) and str(error.cause) == "bad request", error
    assert proxied(workers[0]) == [0, 2, 4, "cancelled"]
    ray.util.remove_placement_group(group)
    ray.shutdown()
    ray.init(address="local", num_cpus=1, **options)  # a cluster of its own, whatever there is
    assert ray.is_initialized()
    ray.shutdown()
    print("done")


main()
