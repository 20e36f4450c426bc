"""Accelerators that are no GPUs: which of them a task or actor has, and what shows it to their libraries."""

from __future__ import annotations

import importlib
import os

import pytest

ENGINE = "ray" if os.environ.get("MRAY_TEST_ENGINE") == "ray" else "mray"
strategies = importlib.import_module(f"{ENGINE}.util.scheduling_strategies")

#: The session is given these, and the machine's own do not count.
SESSION = {"resources": {"custom": 2, "TPU": 4, "neuron_cores": 4, "HPU": 2, "NPU": 2, "RBLN": 1, "FURIOSA": 2, "MBLT": 1, "TTNPU": 1}}
VARIABLES = {
    "CUDA_VISIBLE_DEVICES", "TPU_VISIBLE_CHIPS", "NEURON_RT_VISIBLE_CORES", "HABANA_VISIBLE_MODULES", "ASCEND_RT_VISIBLE_DEVICES",
    "RBLN_DEVICES", "FURIOSA_DEVICES", "QBRUNTIME_VISIBLE_DEVICES", "TT_VISIBLE_DEVICES",
}  # fmt: skip


@pytest.fixture
def look(ray):
    """The devices that the calling code sees: the variables that are set, and the ids of each kind of which it has some."""

    def look():
        shown = {name: os.environ[name] for name in VARIABLES & os.environ.keys()}
        return shown, {kind: ids for kind, ids in ray.get_runtime_context().get_accelerator_ids().items() if ids}

    return look


def test_each_kind_has_its_variable(ray_session, look):
    ray = ray_session
    task = ray.remote(look)
    kinds = ("TPU", "neuron_cores", "HPU", "NPU", "RBLN", "FURIOSA", "MBLT", "TTNPU")
    wanted = {name: int(SESSION["resources"][name]) for name in kinds}
    shown = dict(zip(kinds, ray.get([task.options(resources={name: count}).remote() for name, count in wanted.items()]), strict=True))
    ids = {name: [str(number) for number in range(count)] for name, count in wanted.items()}
    assert {name: sorted(found[1].pop(name)) for name, found in shown.items()} == ids
    assert not any(found[1] for found in shown.values())
    assert {name: found[0] for name, found in shown.items()} == {
        "TPU": {"TPU_VISIBLE_CHIPS": "0,1,2,3"},
        "neuron_cores": {"NEURON_RT_VISIBLE_CORES": "0,1,2,3"},
        "HPU": {"HABANA_VISIBLE_MODULES": "0,1"},
        "NPU": {"ASCEND_RT_VISIBLE_DEVICES": "0,1"},
        "RBLN": {"RBLN_DEVICES": "0"},
        "FURIOSA": {"FURIOSA_DEVICES": "npu:0,npu:1"},
        "MBLT": {"QBRUNTIME_VISIBLE_DEVICES": "0"},
        "TTNPU": {"TT_VISIBLE_DEVICES": "0"},
    }
    # Later tasks in the same worker see none.
    assert ray.get([task.remote() for _ in range(4)]) == [({}, {})] * 4
    assert set(ray.get_runtime_context().get_accelerator_ids()) == {"GPU", *kinds}


def test_no_device_is_given_twice(ray_session, look):
    ray = ray_session

    @ray.remote(num_cpus=0)
    class Holder:
        def look(self):
            return look()

    holders = [Holder.options(resources={"neuron_cores": count}).remote() for count in (1, 2)]
    taken = [found["neuron_cores"] for _shown, found in ray.get([holder.look.remote() for holder in holders])]
    assert [len(ids) for ids in taken] == [1, 2]
    task = ray.remote(look).options(num_gpus=1, resources={"neuron_cores": 1, "NPU": 0.5})
    shown, found = ray.get(task.remote())
    assert {*taken[0], *taken[1], *found["neuron_cores"]} == {"0", "1", "2", "3"}
    assert shown["NEURON_RT_VISIBLE_CORES"] == found["neuron_cores"][0]
    assert set(shown) == {"CUDA_VISIBLE_DEVICES", "NEURON_RT_VISIBLE_CORES", "ASCEND_RT_VISIBLE_DEVICES"}
    assert [len(found[kind]) for kind in ("GPU", "NPU")] == [1, 1]


def test_bundles_have_devices_of_their_own(ray_session, ray, look):
    group = ray.util.placement_group([{"CPU": 1, "neuron_cores": 1}, {"CPU": 1, "neuron_cores": 2}])
    ray.get(group.ready())
    task = ray.remote(look)
    seen = []
    for index, count in enumerate((1, 2)):
        place = strategies.PlacementGroupSchedulingStrategy(group, index)
        shown, found = ray.get(task.options(resources={"neuron_cores": count}, scheduling_strategy=place).remote())
        assert sorted(shown["NEURON_RT_VISIBLE_CORES"].split(",")) == sorted(found["neuron_cores"])
        seen += found["neuron_cores"]
    assert len(seen) == len(set(seen)) == 3
    ray.util.remove_placement_group(group)


@pytest.mark.parametrize(
    ("resources", "text"),
    [
        ({"TPU": 3}, "not a supported chip configuration"),
        ({"TPU": 0.5}, "not a supported chip configuration"),
        ({"neuron_cores": 1.5}, "neuron_cores resource quantity must be whole numbers"),
        ({"HPU": 0.5}, "HPU resource quantity must be whole numbers"),
    ],
)
def test_fractions_that_no_device_has_are_refused(ray_session, look, resources, text):
    with pytest.raises(ValueError, match=text):
        ray_session.remote(look).options(resources=resources)


def test_few_tpu_chips_are_told_their_shape(ray_session):
    ray = ray_session

    @ray.remote
    def look():
        return tuple(os.environ.get(name) for name in ("TPU_CHIPS_PER_HOST_BOUNDS", "TPU_HOST_BOUNDS"))

    bounds = {count: ray.get(look.options(resources={"TPU": count}).remote()) for count in (1, 2, 4)}
    assert bounds == {1: ("1,1,1", "1,1,1"), 2: ("1,2,1", "1,1,1"), 4: (None, None)}


def test_what_the_user_has_set_is_kept(run_program):
    """Ids are of the list that the program was started with; who has none is shown all that it lists, unless that is not wished."""
    program = """
    import os
    import ENGINE as ray

    ray.init(num_cpus=2, num_gpus=1, resources={"neuron_cores": 2}, logging_level="ERROR", include_dashboard=False)

    @ray.remote
    def look():
        ids = ray.get_runtime_context().get_accelerator_ids()
        names = "CUDA_VISIBLE_DEVICES", "NEURON_RT_VISIBLE_CORES", "HABANA_VISIBLE_MODULES"
        return [os.environ.get(name) for name in names], ids["neuron_cores"]

    print("found", ray.get(look.options(resources={"neuron_cores": 1}).remote()))
    print("found", ray.get(look.remote()))
    """
    given = {"NEURON_RT_VISIBLE_CORES": "6,7"}
    kept = run_program(program, env=given).stdout
    assert "found ([None, '6', None], ['6'])" in kept
    assert "found ([None, '6,7', None], [])" in kept
    hidden = run_program(program, env={**given, "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1"}).stdout
    assert "found (['', '6', ''], ['6'])" in hidden
    assert "found (['', '', ''], [])" in hidden
