"""Objects that memory has no room for: they go to disk and are read as any other."""

from __future__ import annotations

import gc
import json
import os

import numpy
import pytest

MIB = 1 << 20
LIMIT = 80 * MIB
SIZE = 8 * MIB
#: Three times what memory may hold.
COUNT = 3 * LIMIT // SIZE
NEEDS_STORE = pytest.mark.processes("values of one process are its own memory, and no other has to find them")


def array(number: int) -> numpy.ndarray:
    return numpy.full(SIZE, number, dtype=numpy.uint8)


def is_array(value: numpy.ndarray, number: int) -> bool:
    return value.nbytes == SIZE and value[0] == value[-1] == number


@pytest.fixture
def small(fresh, init):
    """The module, with a session of little object memory."""
    init(num_cpus=2, object_store_memory=LIMIT)
    return fresh


def files(directory: str) -> list[str]:
    """The objects on disk."""
    try:
        return os.listdir(os.path.join(directory, "spilled"))
    except FileNotFoundError:
        return []


def test_three_times_the_limit_can_be_put_and_read_back(small):
    ray = small
    refs = [ray.put(array(number)) for number in range(COUNT)]
    assert all(is_array(ray.get(ref), number) for number, ref in enumerate(refs))
    assert all(is_array(ray.get(ref), number) for number, ref in enumerate(refs)), "and once more"


def test_three_times_the_limit_can_be_made_by_tasks_and_read_by_tasks(small):
    ray = small

    @ray.remote
    def make(number):
        return array(number)

    @ray.remote
    def check(value, number):
        return bool(is_array(value, number))

    refs = [make.remote(number) for number in range(COUNT)]
    assert all(ray.get([check.remote(ref, number) for number, ref in enumerate(refs)]))
    assert all(is_array(ray.get(ref), number) for number, ref in enumerate(refs))


def test_one_object_may_be_larger_than_the_store(small):
    ray = small
    value = numpy.arange(LIMIT // 4, dtype=numpy.float64)

    @ray.remote
    def double(x):
        return 2 * x

    ref = ray.put(value)
    assert numpy.array_equal(ray.get(ref), value)
    assert numpy.array_equal(ray.get(double.remote(ref)), 2 * value)


def test_values_on_disk_are_read_only_views_that_outlive_their_refs(small):
    ray = small
    refs = [ray.put(array(number)) for number in range(COUNT)]
    values = [ray.get(ref) for ref in refs[-3:]]
    del refs
    gc.collect()
    assert not values[-1].flags.writeable
    assert [value[-1] for value in values] == [COUNT - 3, COUNT - 2, COUNT - 1]


def test_refs_inside_values_on_disk_keep_their_objects(small):
    ray = small
    pad = [ray.put(array(0)) for _ in range(COUNT // 2)]
    inner = ray.put(array(7))
    outer = ray.put([inner, array(1)])
    del inner
    gc.collect()
    assert is_array(ray.get(ray.get(outer)[0]), 7)
    assert len(pad) == COUNT // 2


@NEEDS_STORE
def test_locations_say_what_is_on_disk(small, eventually):
    ray = small
    refs = [ray.put(array(number)) for number in range(COUNT)]
    locations = ray.experimental.get_object_locations(refs)
    assert all(location["object_size"] >= SIZE for location in locations.values())
    eventually(lambda: any(location["did_spill"] for location in ray.experimental.get_object_locations(refs).values()))
    small_ref = ray.put(1)
    assert ray.experimental.get_object_locations([small_ref])[small_ref]["did_spill"] is False


def test_an_object_lives_while_a_ref_lives_anywhere_and_its_memory_is_freed(small):
    """Twenty times the limit passes through."""
    ray = small

    @ray.remote
    class Keeper:
        def keep(self, refs):
            self.ref = refs[0]

        def read(self):
            return int(ray.get(self.ref)[-1])

    keeper = Keeper.remote()
    ray.get(keeper.keep.remote([ray.put(array(9))]))
    for number in range(20 * LIMIT // SIZE):
        assert is_array(ray.get(ray.put(array(number % 256))), number % 256)
    assert ray.get(keeper.read.remote()) == 9


@pytest.mark.only("mray")  # where the files are is each engine's own
def test_a_file_goes_with_the_last_ref(fresh, init, eventually):
    ray = fresh
    directory = init(num_cpus=2, object_store_memory=LIMIT)["session_dir"]

    @ray.remote
    def make(number):
        return array(number)

    refs = [ray.put(array(number)) for number in range(COUNT)] + [make.remote(number) for number in range(4)]
    ray.wait(refs, num_returns=len(refs))
    held = len(files(directory))
    assert held >= COUNT - LIMIT // SIZE
    view = ray.get(refs[-1])
    del refs
    gc.collect()
    eventually(lambda: len(files(directory)) == 1)
    assert view[-1] == 3
    del view
    eventually(lambda: not files(directory))


@pytest.mark.only("mray")  # where the files are is each engine's own
def test_files_go_with_the_death_of_their_owner(fresh, init, eventually):
    ray = fresh
    directory = init(num_cpus=2, object_store_memory=LIMIT)["session_dir"]
    held = [ray.put(array(number)) for number in range(LIMIT // SIZE)]

    @ray.remote
    class Owner:
        def fill(self):
            self.refs = [ray.put(array(number)) for number in range(4)]

    owner = Owner.remote()
    ray.get(owner.fill.remote())
    mine = sum(ray.experimental.get_object_locations(held)[ref]["did_spill"] for ref in held)
    assert len(files(directory)) == mine + 4
    ray.kill(owner)
    eventually(lambda: len(files(directory)) == mine)


@pytest.mark.only("mray")  # where the files are is each engine's own
def test_a_file_outlives_the_worker_that_made_it(fresh, init, eventually):
    ray = fresh
    directory = init(num_cpus=2, object_store_memory=LIMIT)["session_dir"]
    held = [ray.put(array(number)) for number in range(LIMIT // SIZE)]
    mine = len(files(directory))

    @ray.remote
    class Maker:
        def pid(self):
            return os.getpid()

        def make(self, number):
            return array(number)

    maker = Maker.remote()
    refs = [maker.make.remote(number) for number in range(4)]
    ray.wait(refs, num_returns=4)
    pid = ray.get(maker.pid.remote())
    ray.kill(maker)
    eventually(lambda: not os.path.exists(f"/proc/{pid}"))
    assert [int(ray.get(ref)[-1]) for ref in refs] == [0, 1, 2, 3]
    assert len(files(directory)) == mine + 4
    del refs
    eventually(lambda: len(files(directory)) == mine)
    assert is_array(ray.get(held[0]), 0)


@NEEDS_STORE
@pytest.mark.parametrize("way", ["argument", "config"])
def test_the_directory_can_be_named_and_is_left_empty(fresh, init, tmp_path, way, eventually):
    ray = fresh
    place = tmp_path / "on" / "disk"
    if way == "argument":
        init(num_cpus=1, object_store_memory=LIMIT, object_spilling_directory=str(place))
    else:
        place.mkdir(parents=True)
        config = json.dumps({"type": "filesystem", "params": {"directory_path": str(place)}})
        init(num_cpus=1, object_store_memory=LIMIT, _system_config={"object_spilling_config": config})
    refs = [ray.put(array(number)) for number in range(COUNT)]

    def sizes():
        return sum(path.stat().st_size for path in place.rglob("*") if path.is_file())

    eventually(lambda: sizes() > LIMIT)
    assert all(is_array(ray.get(ref), number) for number, ref in enumerate(refs))
    del refs
    ray.shutdown()
    eventually(lambda: not sizes())


@pytest.mark.only("mray")  # the names are its own
def test_what_a_session_that_is_gone_has_left_elsewhere_is_removed_and_nothing_else(fresh, init, tmp_path):
    (tmp_path / "session").mkdir()
    links = {"gone": tmp_path / "no session", "alive": tmp_path / "session", "unknown": None}
    for name, session in links.items():
        place = tmp_path / f"mray_spilled_objects_{name}"
        place.mkdir()
        (place / "object").touch()
        if session is not None:
            (place / ".session").symlink_to(session)
    init(num_cpus=1, object_spilling_directory=str(tmp_path))
    fresh.shutdown()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mray_spilled_objects_alive", "mray_spilled_objects_unknown", "session"]


@pytest.mark.only("mray")  # Ray checks the type too, with other words
def test_a_configuration_that_means_nothing_here_is_refused(fresh, init):
    with pytest.raises(ValueError, match="filesystem"):
        init(num_cpus=1, _system_config={"object_spilling_config": json.dumps({"type": "smart_open", "params": {"uri": "s3://x"}})})


@pytest.mark.only("mray")  # Ray goes on trying for as long as it takes
def test_without_spilling_the_store_is_full(fresh, init):
    ray = fresh
    init(num_cpus=1, object_store_memory=LIMIT, _system_config={"automatic_object_spilling_enabled": False})
    refs = []
    with pytest.raises(ray.exceptions.ObjectStoreFullError):
        refs.extend(ray.put(array(number)) for number in range(COUNT))
    refs.clear()
    gc.collect()
    assert is_array(ray.get(ray.put(array(1))), 1)


@NEEDS_STORE
@pytest.mark.parametrize("told", [True, False])
def test_the_driver_is_told_of_what_went_to_disk_unless_it_does_not_want_to(run_program, told):
    done = run_program(
        """
        import time

        import numpy

        import ENGINE as ray

        ray.init(num_cpus=1, object_store_memory=80 << 20, include_dashboard=False)
        refs = [ray.put(numpy.ones(8 << 20, dtype=numpy.uint8)) for _ in range(30)]
        assert sum(int(ray.get(ref)[-1]) for ref in refs) == 30
        if ray.__name__ == "ray":
            time.sleep(2)  # its log monitor
        ray.shutdown()
        """,
        env={"RAY_verbose_spill_logs": str(50 << 20) if told else "0"},
    )
    assert ("Spilled " in done.stdout + done.stderr) is told


LARGE = 3 * MIB * 5


def test_large_results_of_one_task_are_stored_beside_each_other(small):
    """Some in memory and some on disk, with small ones and views between them."""
    ray = small

    @ray.remote(num_returns=9)
    def make():
        large = [numpy.full(LARGE, number, dtype=numpy.uint8) for number in range(7)]
        return [*large[:3], "small", *large[3:], large[0][::2]]

    refs = make.remote()
    values = ray.get(refs)
    assert values[3] == "small"
    assert [value.nbytes for value in values[:3] + values[4:8]] == [LARGE] * 7
    assert [set(value[::4096].tolist()) for value in values[:3] + values[4:8]] == [{number} for number in range(7)]
    assert values[8].nbytes == -(-LARGE // 2)
    assert not any(value.flags.writeable for value in values[:3])


@NEEDS_STORE
@pytest.mark.only("mray")
@pytest.mark.parametrize("place", [0, 2, 3])
def test_a_result_that_cannot_be_pickled_frees_the_large_ones_beside_it(fresh, init, place):
    """There is room for them once: ten times in a row they fit only if each failed call has freed its own."""
    ray = fresh
    init(num_cpus=1, object_store_memory=LIMIT, _system_config={"automatic_object_spilling_enabled": False})

    @ray.remote(num_returns=4)
    def make():
        values = [numpy.zeros(LARGE, dtype=numpy.uint8) for _ in range(3)]
        values.insert(place, (each for each in ()))
        return values

    for _ in range(10):
        for ref in make.remote():
            with pytest.raises(TypeError, match="generator"):
                ray.get(ref)
