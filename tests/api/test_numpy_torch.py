"""Arrays and tensors: without copies, read-only, aligned."""

from __future__ import annotations

from pathlib import Path

import pytest

np = pytest.importorskip("numpy")


def make_in_shared_memory():
    """A function that workers can be sent by value."""

    def in_shared_memory(address: int) -> bool:
        """Whether the page at this address is one of shared memory: a value that was not copied."""
        for line in Path("/proc/self/maps").read_text().splitlines():
            span, permissions = line.split()[:2]
            low, high = (int(part, 16) for part in span.split("-"))
            if low <= address < high:
                return permissions.endswith("s") or " /dev/shm/" in line
        return False

    return in_shared_memory


in_shared_memory = make_in_shared_memory()


DTYPES = ["?", "i1", "u2", "i4", "i8", "f2", "f4", "f8", "c8", "c16", "U5", "S3", "M8[s]", "O"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_of_every_dtype_survive(ray_session, dtype):
    array = np.zeros((3, 4), dtype=dtype)
    back = ray_session.get(ray_session.put(array))
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.arange(24).reshape(2, 3, 4),
        lambda: np.asfortranarray(np.arange(24).reshape(4, 6)),
        lambda: np.arange(24)[::2],
        lambda: np.arange(24).reshape(4, 6).T,
        lambda: np.array(5),
        lambda: np.empty((0, 3)),
        lambda: np.float32(1.5),
        lambda: np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
        lambda: np.ma.masked_array([1, 2], mask=[True, False]),
        lambda: np.broadcast_to(np.arange(3), (4, 3)),
    ],
)
def test_arrays_of_every_shape_survive(ray_session, make):
    array = make()
    back = ray_session.get(ray_session.put(array))
    assert type(back) is type(array)
    np.testing.assert_array_equal(back, array)
    assert np.shape(back) == np.shape(array)


@pytest.mark.parametrize("size", [10, 1_000_000])
def test_arrays_come_back_read_only(ray_session, size):
    back = ray_session.get(ray_session.put(np.zeros(size)))
    with pytest.raises(ValueError, match="assignment destination is read-only"):
        back[0] = 1


def test_arguments_of_tasks_are_read_only_too(ray_session):
    ray = ray_session

    @ray.remote
    def f(array):
        array[0] = 1

    with pytest.raises(ValueError, match="assignment destination is read-only"):
        ray.get(f.remote(np.zeros(100_000)))


def test_large_arrays_are_aligned_to_64_bytes_and_small_ones_to_8(ray_session):
    ray = ray_session
    for size in (1, 7, 100):
        assert ray.get(ray.put(np.zeros(size))).ctypes.data % 8 == 0
    for size in (100_000, 1_000_003):
        back = ray.get(ray.put([np.zeros(3), np.zeros(size, dtype=np.uint8), np.zeros(size)]))
        assert back[2].ctypes.data % 64 == 0


def test_a_large_array_is_not_copied(ray_session):
    ray = ray_session
    ref = ray.put(np.zeros(1_000_000))
    first, second = ray.get(ref), ray.get(ref)
    assert in_shared_memory(first.ctypes.data)
    assert in_shared_memory(second.ctypes.data)


def test_an_array_in_a_container_is_not_copied(ray_session):
    ray = ray_session
    array = ray.get(ray.put({"a": [np.zeros(1_000_000)]}))["a"][0]
    assert in_shared_memory(array.ctypes.data)


def test_a_large_argument_is_not_copied(ray_session):
    ray = ray_session

    in_shared_memory = make_in_shared_memory()

    @ray.remote
    def look(array):
        return in_shared_memory(array.ctypes.data)

    array = np.zeros(1_000_000)
    assert ray.get([look.remote(array), look.remote(ray.put(array))]) == [True, True]


def test_arrays_as_arguments_and_results(ray_session):
    ray = ray_session

    @ray.remote
    def double(array):
        return array * 2

    array = np.arange(300_000)
    np.testing.assert_array_equal(ray.get(double.remote(array)), array * 2)
    np.testing.assert_array_equal(ray.get(double.remote(ray.put(array))), array * 2)


def test_a_task_may_return_its_argument(ray_session):
    ray = ray_session

    @ray.remote
    def same(array):
        return array

    array = np.arange(300_000)
    np.testing.assert_array_equal(ray.get(same.remote(array)), array)


def test_an_array_outlives_the_actor_that_made_it(ray_session):
    ray = ray_session

    @ray.remote
    class Maker:
        def make(self):
            return np.full(500_000, 3.0)

    maker = Maker.remote()
    array = ray.get(maker.make.remote())
    ray.kill(maker)
    assert array.sum() == 1_500_000.0


def test_an_array_kept_by_an_actor_stays_as_it_was(ray_session):
    ray = ray_session

    @ray.remote
    class Keeper:
        def keep(self, array):
            self.array = array

        def total(self):
            return float(self.array.sum())

    keeper = Keeper.remote()
    ray.get(keeper.keep.remote(np.ones(300_000)))
    for i in range(5):
        ray.get(ray.put(np.full(300_000, float(i))))
    assert ray.get(keeper.total.remote()) == 300_000.0


def test_object_arrays_and_lists_of_arrays_survive(ray_session):
    ray = ray_session
    array = np.array([1, "a", None, np.zeros(2)], dtype=object)
    back = ray.get(ray.put(array))
    assert back[:3].tolist() == [1, "a", None]
    many = [np.full(3, i) for i in range(50)]
    np.testing.assert_array_equal(ray.get(ray.put(many)), many)


def test_ufuncs_and_dtypes_survive(ray_session):
    ray = ray_session
    assert ray.get(ray.put(np.add))(1, 2) == 3
    assert ray.get(ray.put(np.dtype("f4"))) == np.dtype("f4")


def test_bytes_and_memory_of_a_mebibyte_survive(ray_session):
    ray = ray_session
    value = {"a": b"x" * (1 << 20), "b": bytearray(b"y" * (1 << 20)), "c": np.ones(1 << 17)}
    back = ray.get(ray.put(value))
    assert (back["a"], back["b"]) == (value["a"], value["b"])
    np.testing.assert_array_equal(back["c"], value["c"])


# ------------------------------------------------------------------------------------------------ torch
def torch_values(torch):
    base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    return {
        "plain": base,
        "transposed": base.t(),
        "strided": base[::2, 1::3],
        "half": base.half(),
        "bfloat16": base.bfloat16(),
        "int8": base.to(torch.int8),
        "bool": base > 3,
        "complex": torch.complex(base, base),
        "scalar": torch.tensor(3.5),
        "empty": torch.empty(0, 3),
        "large": torch.ones(500_000),
    }


@pytest.mark.parametrize(
    "kind", ["plain", "transposed", "strided", "half", "bfloat16", "int8", "bool", "complex", "scalar", "empty", "large"]
)
def test_torch_tensors_survive(ray_session, kind):
    torch = pytest.importorskip("torch")
    ray = ray_session
    tensor = torch_values(torch)[kind]
    back = ray.get(ray.put({"nested": [tensor]}))["nested"][0]
    assert back.dtype == tensor.dtype
    assert back.shape == tensor.shape
    assert torch.equal(back, tensor)


def test_torch_tensors_as_arguments_and_results(ray_session):
    torch = pytest.importorskip("torch")
    ray = ray_session

    @ray.remote
    def double(tensor):
        return tensor * 2

    assert torch.equal(ray.get(double.remote(torch.ones(1000, 300))), torch.full((1000, 300), 2.0))


def test_torch_parameters_and_gradients_survive(ray_session):
    torch = pytest.importorskip("torch")
    ray = ray_session
    linear = torch.nn.Linear(3, 2)
    back = ray.get(ray.put(linear))
    assert torch.equal(back.weight, linear.weight)
    assert isinstance(back.weight, torch.nn.Parameter)
    assert back.weight.requires_grad


@pytest.mark.only("mray", "local")
def test_a_large_torch_tensor_is_not_copied(ray_session):
    """Ray does so with RAY_ENABLE_ZERO_COPY_TORCH_TENSORS=1; mray always."""
    torch = pytest.importorskip("torch")
    ray = ray_session
    assert in_shared_memory(ray.get(ray.put(torch.ones(1_000_000))).data_ptr())


def test_zero_copy_torch_tensors_on_request(run_program):
    pytest.importorskip("torch")
    done = run_program(
        """
        import torch
        import ENGINE as ray
        from pathlib import Path

        def in_shared_memory(address):
            for line in Path("/proc/self/maps").read_text().splitlines():
                span, permissions = line.split()[:2]
                low, high = (int(part, 16) for part in span.split("-"))
                if low <= address < high:
                    return permissions.endswith("s") or " /dev/shm/" in line

        ray.init(num_cpus=1, logging_level="ERROR", include_dashboard=False)
        tensor = torch.arange(200_000, dtype=torch.float32).reshape(400, 500)
        back = ray.get(ray.put({"a": (tensor, tensor.t()), "b": tensor.bfloat16()}))
        print(torch.equal(back["a"][0], tensor), torch.equal(back["a"][1], tensor.t()))
        print(back["b"].dtype, in_shared_memory(back["a"][0].data_ptr()))
        """,
        env={"RAY_ENABLE_ZERO_COPY_TORCH_TENSORS": "1"},
    )
    assert done.stdout.splitlines() == ["True True", "torch.bfloat16 True"]
