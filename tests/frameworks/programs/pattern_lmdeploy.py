"""As LMDeploy's executor on Ray: the host of the rendezvous out of the cluster's address, tasks that wait for their end, a step's
inputs that are dropped with the next, and a store that engines share.
"""

import asyncio
import os
import socket

import numpy as np
import ray
import ray.exceptions
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

WORLD = 2


def error_of(call, *args, **options):
    """The error that a call raises, as it has to."""
    try:
        call(*args, **options)
    except Exception as error:
        return error
    raise AssertionError(f"{call} raises nothing")


class Worker:
    def __init__(self, **options):
        self.options, self.address = options, ray.util.get_node_ip_address()
        self.outputs = asyncio.Queue()

    def get_node_ip(self):
        return self.address

    def serve(self, host):
        self.server = socket.create_server((host, 0))
        return self.server.getsockname()[1]

    def warm_up(self, host, port):
        with socket.create_connection((host, port)):
            return os.environ["LMDEPLOY_SAID"]

    async def forward(self, inputs):
        await self.outputs.put(int(np.asarray(inputs["tokens"]).sum()))

    async def get_outputs(self):
        return await self.outputs.get()

    async def wait_tasks(self):
        await asyncio.Event().wait()

    def exit(self):
        ray.actor.exit_actor()


class Store:
    def __init__(self):
        self.kept = {}

    def put(self, value):
        self.kept[len(self.kept)] = ray.put(value)
        return len(self.kept) - 1

    def get(self, key):
        return ray.get(self.kept[key])

    def shutdown(self):
        self.kept.clear()


def start():
    context = ray.init(address=None, ignore_reinit_error=True, num_cpus=4, num_gpus=4, log_to_driver=False)
    assert context.address_info["address"] == ray.get_runtime_context().gcs_address
    ray.init(address="auto", num_cpus=2, ignore_reinit_error=True)
    host, port = ray.get_runtime_context().gcs_address.split(":")  # one of version 6 would be taken apart wrongly there too
    assert host == ray.util.get_node_ip_address() and port.isdigit()
    return host


def make(group, index, **more):
    place = PlacementGroupSchedulingStrategy(
        placement_group=group, placement_group_capture_child_tasks=True, placement_group_bundle_index=index
    )
    variables = {"env_vars": {"LMDEPLOY_SAID": "yes"}}
    return ray.remote(num_cpus=0, num_gpus=0.01, scheduling_strategy=place, runtime_env=variables)(Worker).remote(**more)


async def forward(workers):
    """Steps whose inputs are dropped when they are done."""
    calls = None
    found = []
    for step in range(3):
        if calls is not None:
            await asyncio.gather(*calls)
        before = ray.put({"tokens": np.full(100_000, step)})
        calls = [worker.forward.remote(before) for worker in workers]
        found.append(await workers[0].get_outputs.remote())
    return found


async def wait_and_cancel(workers):
    """Tasks that wait for workers' ends, cancelled from outside."""
    refs = [worker.wait_tasks.remote() for worker in workers]

    async def one(ref):
        await ref

    waiting = [asyncio.ensure_future(one(ref)) for ref in refs]
    await asyncio.wait(waiting, timeout=0.1)
    for each in waiting:
        each.cancel()
    ends = await asyncio.gather(*waiting, return_exceptions=True)
    for ref in refs:
        ray.cancel(ref)
    return [type(end).__name__ for end in ends]


async def killed(worker):
    ref = worker.wait_tasks.remote()
    asyncio.get_running_loop().call_later(0.1, ray.kill, worker)
    try:
        await ref
    except ray.exceptions.ActorDiedError:
        ray.cancel(ref)
        return True
    return False


def store():
    name, space = "shared_store", "lmdeploy"
    assert isinstance(error_of(ray.get_actor, name, namespace=space), ValueError)
    made = ray.remote(num_cpus=0)(Store).options(name=name, namespace=space, lifetime="detached").remote()
    again = error_of(ray.remote(num_cpus=0)(Store).options(name=name, namespace=space).remote)
    assert isinstance(again, ray.exceptions.ActorAlreadyExistsError), again
    found = ray.get_actor(name, namespace=space)
    key = ray.get(found.put.remote(np.arange(5)))
    assert ray.get(found.get.remote(key)).tolist() == [0, 1, 2, 3, 4]
    ray.get(found.shutdown.remote())
    ray.kill(made)


def main():
    host = start()
    bundles = [{"GPU": 1.0} for _ in range(WORLD)]
    bundles[0][f"node:{ray.util.get_node_ip_address()}"] = 0.001
    group = ray.util.placement_group(bundles, strategy="PACK")
    assert ray.wait([group.ready()], timeout=60)[0]
    workers = [make(group, index, rank=index) for index in range(len(group.bundle_specs))]
    assert set(ray.get([worker.get_node_ip.remote() for worker in workers])) == {host}
    port = ray.get(workers[0].serve.remote(host))
    assert ray.get([worker.warm_up.remote(host, port) for worker in workers]) == ["yes"] * WORLD
    assert asyncio.run(forward(workers)) == [0, 100_000, 200_000]
    assert asyncio.run(wait_and_cancel(workers)) == ["CancelledError"] * WORLD
    assert asyncio.run(killed(make(group, 1)))
    store()
    assert isinstance(error_of(ray.get, workers[1].exit.remote()), ray.exceptions.ActorDiedError)
    ray.util.remove_placement_group(group)
    ray.shutdown()
    assert not ray.is_initialized()
    print("done")


main()
