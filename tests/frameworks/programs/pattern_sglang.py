"""As SGLang's engine on Ray: schedulers as named actors in the bundle of the engine's own node, whose event loops end only with them."""

from __future__ import annotations

import threading

import ray
from ray import ObjectRef
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy


def error_of(call, *args, **options):
    """The error that a call raises, as it has to."""
    try:
        call(*args, **options)
    except Exception as error:
        return error
    raise AssertionError(f"{call} raises nothing")


@ray.remote
class Scheduler:
    def __init__(self, gpu_id: int, rank: int, address: str | None = None, fails: bool = False):
        found = ray.get_runtime_context().get_accelerator_ids().get("GPU", [])
        self.gpu, self.rank, self.address = int(found[0]) if found else gpu_id, rank, address
        if fails:
            raise RuntimeError("CUDA out of memory")

    def get_info(self) -> dict[str, object]:
        return {"rank": self.rank, "gpu": self.gpu, "address": self.address}

    def run_event_loop(self) -> None:
        threading.Event().wait()

    def pull(self, refs: list[ObjectRef]) -> int:
        return sum(map(sum, ray.get(refs)))


def bundle_of_the_engine(group, count):
    """The first bundle on the node of this process."""

    @ray.remote(num_cpus=0, num_gpus=0)
    def address():
        return ray.util.get_node_ip_address()

    places = [PlacementGroupSchedulingStrategy(placement_group=group, placement_group_bundle_index=index) for index in range(count)]
    return ray.get([address.options(scheduling_strategy=place).remote() for place in places]).index(ray.util.get_node_ip_address())


def main():
    ray.init(num_cpus=4, num_gpus=4, log_to_driver=False)
    group = placement_group([{"CPU": 1, "GPU": 2}] * 2, strategy="PACK")
    ray.get(group.ready())
    index = bundle_of_the_engine(group, 2)
    place = PlacementGroupSchedulingStrategy(placement_group=group, placement_group_bundle_index=index)
    host = ray.util.get_node_ip_address()

    def scheduler(rank, **more):
        name = f"sglang_scheduler_{host}_{group.id.hex()[:8]}_{rank}{len(more)}"
        options = {"num_cpus": 0, "num_gpus": 1, "name": name, "scheduling_strategy": place}
        return Scheduler.options(**options).remote(gpu_id=rank, rank=rank, address=f"{host}:{20000 + rank}", **more)

    schedulers = [scheduler(rank) for rank in range(2)]
    infos = ray.get([each.get_info.remote() for each in schedulers])
    assert [info["rank"] for info in infos] == [0, 1] and len({info["gpu"] for info in infos}) == 2, infos
    assert ray.get(schedulers[0].pull.remote([ray.put([1, 2]), ray.put([3])])) == 6
    loops = [each.run_event_loop.remote() for each in schedulers]
    ends = []

    def block_until_they_end():
        try:
            ray.get(loops)
        except ray.exceptions.RayActorError as error:
            ends.append(type(error).__name__)

    thread = threading.Thread(target=block_until_they_end)
    thread.start()
    for each in schedulers:
        ray.kill(each)
    thread.join()
    assert ends == ["ActorDiedError"], ends
    broken = scheduler(0, fails=True)
    error = error_of(ray.get, broken.get_info.remote())
    assert isinstance(error, ray.exceptions.RayActorError) and "CUDA out of memory" in str(error), error
    ray.util.remove_placement_group(group)
    ray.shutdown()
    print("done")


main()
