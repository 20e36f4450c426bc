"""Values to bytes and back, in one process."""

from __future__ import annotations

import copyreg
import gc
import pickle
import subprocess
import sys
import weakref

import cloudpickle
import numpy
import pytest

from mray._channel.tensor_form import encode_tensor
from mray._common.messages import PACKED, PICKLED
from mray._common.reducers import deregister_serializer, register_serializer
from mray._common.tensor_layout import has_memory
from mray._ipc.mapped import address_of, claim
from mray._objects.serializer import HERE, deserialize, dumps, is_plain, note_ref, serialize


def round_trip(value):
    packed = serialize(value)
    return deserialize(packed.form, packed.to_bytes())


@pytest.mark.parametrize(
    "value",
    [None, True, 3, 2.5, "text", b"bytes", [1, [2, {"a": (3, None)}]], {"k": {1, 2}}, 1j, range(3), slice(1, 2)],
    ids=repr,
)
def test_builtin_values_come_back_equal(value):
    assert round_trip(value) == value


@pytest.mark.parametrize("dtype", ["u1", "i8", "f4", "c16", "?", "M8[ns]", "S3", "O"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (1000, 3)], ids=str)
def test_numpy_arrays_come_back_equal(dtype, shape):
    array = numpy.zeros(shape, dtype=dtype)
    result = round_trip({"x": [array]})["x"][0]
    assert result.dtype == array.dtype
    assert result.shape == array.shape
    assert numpy.array_equal(result, array)


def test_arrays_lie_at_aligned_addresses():
    for result in round_trip([numpy.arange(5, dtype="u1"), numpy.arange(7.0)]):
        assert result.ctypes.data % 64 == 0


def test_fortran_and_strided_arrays_keep_their_values():
    array = numpy.arange(24).reshape(4, 6)
    assert numpy.array_equal(round_trip(array.T), array.T)
    assert numpy.array_equal(round_trip(array[::2, ::3]), array[::2, ::3])


def test_large_bytes_are_not_copied_into_the_pickle():
    packed = serialize(b"x" * 200_000)
    assert len(packed.pickled) < 100
    assert round_trip(b"x" * 200_000) == b"x" * 200_000


def test_several_buffers_do_not_overlap():
    arrays = [numpy.full(n, n % 256, dtype="u1") for n in range(1, 300, 7)]
    for array, result in zip(arrays, round_trip(arrays), strict=True):
        assert numpy.array_equal(array, result)


def test_plain_values_have_no_buffers_and_arrays_have():
    assert serialize([1, "a"]).form == PICKLED
    assert serialize(numpy.zeros(3)).form == PACKED


def test_a_lambda_and_a_local_class_travel_by_value():
    offset = 3

    class Local:
        def __init__(self, x):
            self.x = x

    assert round_trip(lambda x: x + offset)(4) == 7
    assert round_trip(Local(5)).x == 5


def test_what_lives_in_main_travels_by_value():
    script = (
        "import sys, pickle, subprocess\n"
        "from mray._objects.serializer import serialize\n"
        "class Mine:\n"
        "    def __init__(self): self.x = 7\n"
        "sys.stdout.buffer.write(serialize([Mine()]).to_bytes())\n"
    )
    pickled = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout
    assert pickle.loads(pickled)[0].x == 7


def test_what_cannot_be_pickled_raises():
    with pytest.raises(TypeError, match="lock"):
        import threading

        serialize(threading.Lock())


class Celsius:
    def __init__(self, degrees):
        self.degrees = degrees
        self.history = (degrees for _ in ())  # cannot be pickled


def test_a_registered_serializer_is_used_wherever_the_value_stands():
    register_serializer(Celsius, lambda value: value.degrees, lambda degrees: Celsius(degrees))
    try:
        assert round_trip({"t": [Celsius(21)]})["t"][0].degrees == 21
    finally:
        deregister_serializer(Celsius)
    with pytest.raises(TypeError):
        serialize(Celsius(21))


def test_torch_tensors_keep_dtype_shape_and_values():
    torch = pytest.importorskip("torch")
    for dtype in (torch.float32, torch.bfloat16, torch.bool, torch.complex64, torch.int8):
        tensor = torch.arange(12).reshape(3, 4).to(dtype)
        result = round_trip([tensor, {"n": tensor.t()}])
        assert result[0].dtype == dtype
        assert torch.equal(result[0], tensor)
        assert torch.equal(result[1]["n"], tensor.t())


def without_memory(torch):
    """Tensors of whose elements none, or not all, are anywhere."""
    freed, cut, cut_in_rows = torch.ones(500), torch.ones(500), torch.ones(50, 10)
    views = freed[100:], cut_in_rows.T[:, 20:], cut_in_rows[:, 3]
    freed.untyped_storage().resize_(0)
    cut.untyped_storage().resize_(400)
    cut_in_rows.untyped_storage().resize_(400)
    return [freed, cut, cut_in_rows, *views, torch.nn.Parameter(cut), cut[:100].clone().set_(cut.untyped_storage(), 99, (1,))]


def test_tensors_without_their_memory_are_left_to_torch():
    torch = pytest.importorskip("torch")
    *gone, there = without_memory(torch)
    for tensor in gone:
        assert not has_memory(tensor)
        assert encode_tensor(tensor.detach()) is None
        arrived = round_trip([tensor])[0]
        assert (type(arrived), arrived.dtype, arrived.shape) == (type(tensor), tensor.dtype, tensor.shape)
        assert has_memory(arrived)
    for tensor in (there, gone[0][:0]):
        assert has_memory(tensor)
        assert round_trip([tensor])[0].tolist() == tensor.tolist()


def test_tensors_of_zeros_that_have_no_memory_are_refused():
    torch = pytest.importorskip("torch")
    zeros = torch._efficientzerotensor(3, 5)
    for tensor in (zeros, zeros[1:], zeros.T):
        assert encode_tensor(tensor) is None
        with pytest.raises(RuntimeError, match="ZeroTensor is not serializable"):
            serialize(tensor)


def test_large_torch_tensors_are_not_copied_into_the_pickle():
    torch = pytest.importorskip("torch")
    packed = serialize(torch.zeros(100_000))
    assert packed.form == PACKED
    assert len(packed.pickled) < 1000


class Number(int):
    """An int that says more than its value."""

    def __reduce__(self):
        return Number, (int(self) + 1,)


PLAIN = [1, [], [1, "a", None], (1.5, b"b"), {}, {"a": 1, 2: None}, [True] * 32]
OTHERS = [Number(1), (1, [2]), {"a": Number(1)}, {Number(1): 1}, {"a": {}}, {1}, [1] * 33, numpy.float64(1), [numpy.float64(1)]]


@pytest.mark.parametrize("value", PLAIN, ids=repr)
def test_a_plain_value_is_one_of_plain_types_only(value):
    assert is_plain(value)
    assert round_trip(value) == value
    assert type(round_trip(value)) is type(value)


@pytest.mark.parametrize("value", OTHERS, ids=repr)
def test_whatever_may_have_a_way_of_its_own_is_not_plain(value):
    assert not is_plain(value)


def test_items_keep_their_own_way_of_pickling():
    assert round_trip([Number(1)]) == [2]
    assert round_trip({"a": Number(1)}) == {"a": 2}


def info(dtype):
    """The facts of a dtype, beyond equality: long and long long are equal where they are one size."""
    fields = None if dtype.fields is None else [(name, info(kind), *more) for name, (kind, *more) in dtype.fields.items()]
    base = None if dtype.subdtype is None else (info(dtype.subdtype[0]), dtype.subdtype[1])
    return dtype, dtype.type, dtype.char, dtype.str, dtype.isalignedstruct, dtype.metadata, fields, base


FORTRAN = numpy.asfortranarray(numpy.arange(6).reshape(2, 3))
ARRAYS = [
    numpy.arange(6).reshape(2, 3).astype(name) for name in ("?", "b", "B", "h", "H", "i", "I", "l", "L", "q", "Q", "e", "f", "d", "F", "D")
] + [numpy.zeros(2, kind) for kind in sorted(set(numpy.sctypeDict.values()), key=repr)] + [
    numpy.zeros(2, kind) for kind in (
        ">i8", ">c16", ">U2", "<M8[25us]", ">m8[D]", "V3", "S0", numpy.dtype([("a", "i1"), ("b", "q")], align=True),
        [("x", "u8", (2, 3)), ("y", [("z", ">q")])], numpy.dtype({"names": ["a"], "formats": ["L"], "offsets": [5], "itemsize": 20}),
        *(numpy.dtypes.StringDType(**given) for given in ({}, {"na_object": None}) if hasattr(getattr(numpy, "dtypes", 0), "StringDType")),
    )
] + [
    numpy.array(5.0), numpy.zeros((0, 3)), numpy.arange(6, dtype=">i4"), numpy.arange(10)[::2], FORTRAN, numpy.zeros(3, "S3"),
    numpy.zeros(2, [("a", "i4"), ("b", "f8")]), numpy.array([None, "x"], object), numpy.zeros(1, numpy.longdouble),
    numpy.zeros(2, numpy.dtype("i4", metadata={"unit": "m"})), numpy.broadcast_to(numpy.arange(3), (2, 3)), numpy.zeros(2, "M8[s]"),
]  # fmt: skip


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype}-{array.shape}-{array.strides}")
def test_arrays_of_every_kind_come_back_as_numpys_own_pickle_gives_them(array):
    expected = pickle.loads(pickle.dumps(array, 5))
    for result in (round_trip(array), round_trip([array])[0], round_trip({"a": (1, array)})["a"][1]):
        assert type(result) is type(expected)
        assert info(result.dtype) == info(expected.dtype)
        assert result.shape == expected.shape
        assert result.flags.f_contiguous == expected.flags.f_contiguous
        assert repr(result.tolist()) == repr(expected.tolist())
        if array.dtype.kind in "biufc" and array.flags.c_contiguous and array.size:
            assert not result.flags.writeable
            if array.dtype.isnative and not array.dtype.metadata and array.dtype.char not in "gG":  # which go numpy's own way
                assert result.dtype is numpy.dtype(array.dtype.str)


def test_an_array_of_a_derived_class_keeps_its_class():
    class_of_numpy = numpy.ma.masked_array([1, 2], mask=[0, 1])
    assert type(round_trip(class_of_numpy)) is type(class_of_numpy)
    assert round_trip(class_of_numpy).mask.tolist() == [False, True]
    records = numpy.rec.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")])
    assert round_trip(records).a.tolist() == [1]


@pytest.mark.parametrize("value", ["text", [numpy.arange(1000), b"x" * 100_000, numpy.ones(3)]], ids=["pickled", "packed"])
def test_a_value_is_the_same_in_a_file_and_in_memory(tmp_path, value):
    packed = serialize(value)
    path = tmp_path / "value"
    with path.open("wb") as file:
        packed.write_to(file.fileno())
    assert path.read_bytes().ljust(packed.size, b"\0") == packed.to_bytes()


def test_a_value_may_begin_in_the_middle_of_memory_that_has_its_arrays():
    array = numpy.arange(1000)
    packed = serialize([array, "more"])
    packed.divert({0: (HERE, 0)})
    memory = bytearray(array.nbytes + packed.size)
    memory[: array.nbytes] = array.tobytes()
    packed.write_into(memoryview(memory)[array.nbytes :], array.nbytes)
    got = deserialize(PACKED, None, bytes(memory), at=array.nbytes)
    assert numpy.array_equal(got[0], array)
    assert got[1] == "more"


def test_each_reading_of_small_bytes_has_memory_of_its_own():
    payload = serialize([numpy.ones(3), numpy.ones(2)]).to_bytes()
    (first, second), (other, _) = deserialize(PACKED, payload), deserialize(PACKED, payload)
    memory = claim(first.base.base)
    assert memory is claim(second.base.base) is not None
    numpy.frombuffer(memory, first.dtype, 1, first.ctypes.data - address_of(memory))[0] = 5
    assert first[0] == 5
    assert other[0] == 1
    assert deserialize(PACKED, payload)[0][0] == 1


@pytest.mark.parametrize("exporter", [bytes, bytearray])
def test_memory_that_no_reading_was_handed_is_nobodys_to_give(exporter):
    assert claim(memoryview(exporter(64)).toreadonly()) is None


class Asked:
    """Counts how often it is asked for what it is made of, and by then has nothing left."""

    def __init__(self):
        self.items = [1, 2, 3]
        self.asked = 0

    def taken(self):
        items, self.items = self.items, []
        self.asked += 1
        return items


class ByState(Asked):
    def __getstate__(self):
        return {"items": self.taken()}


class ByReduce(Asked):
    def __reduce__(self):
        return ByReduce, (), {"items": self.taken()}


class ByReduceEx(Asked):
    def __reduce_ex__(self, protocol):
        return ByReduceEx, (), {"items": self.taken()}


class ByNewArguments(Asked):
    def __new__(cls, items=()):
        made = super().__new__(cls)
        made.given = list(items)
        return made

    def __init__(self, items=()):
        super().__init__()

    def __getnewargs__(self):
        return (self.taken(),)

    def __getstate__(self):
        return {"items": self.given or list(self.items)}

    def __setstate__(self, state):
        self.items = self.given


class ByTable(Asked):
    pass


class ByRegistration(Asked):
    pass


class Mapping(dict):
    """Answers for its items as attributes."""

    def __getattr__(self, name):
        return self[name]

    def __getstate__(self):
        taken = self["asked"].taken()
        return {"items": taken}


def remade(kind, items):
    made = kind()
    made.items = items
    return made


copyreg.pickle(ByTable, lambda value: (remade, (ByTable, value.taken())))
KINDS = [ByState, ByReduce, ByReduceEx, ByNewArguments, ByTable, ByRegistration]
#: Values for some of which another pickler is necessary, or looks so.
BESIDE = {
    "nothing": lambda: None,
    "a lambda": lambda: lambda: 1,
    "a local class": lambda: type("Local", (), {}),
    "a text": lambda: "__main__",
    "a file": lambda: open(__file__),  # noqa: SIM115  (the test closes it)
    "an array": lambda: numpy.arange(3),
    "a view of memory": lambda: memoryview(b"abc"),
    "a code": lambda: remade.__code__,
}


@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.parametrize("first", [True, False], ids=["first", "last"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["serialize", "dumps"])
def test_each_object_is_asked_once_whatever_stands_beside_it(kind, beside, first, way):
    register_serializer(ByRegistration, lambda value: value.taken(), lambda items: remade(ByRegistration, items))
    other = BESIDE[beside]()
    try:
        value = kind()
        both = [value, other] if first else [other, value]
        arrived = (round_trip(both) if way == "serialize" else pickle.loads(dumps(both)))[0 if first else 1]
        assert arrived.items == [1, 2, 3]
        assert value.asked == 1
    finally:
        deregister_serializer(ByRegistration)
        if beside == "a file":
            other.close()


def test_an_instance_of_the_script_beside_arrays_is_asked_once():
    script = (
        "import sys, numpy\n"
        "from mray._objects.serializer import deserialize, dumps, serialize\n"
        "class Drain:\n"
        "    asked = 0\n"
        "    def __getstate__(self):\n"
        "        self.asked += 1\n"
        "        return {'asked': self.asked}\n"
        "class Items(dict): pass\n"
        "for _ in range(2):\n"
        "    drain = Drain()\n"
        "    packed = serialize({'d': [drain, drain], 'a': numpy.arange(4), 'm': Items(x=drain)})\n"
        "    back = deserialize(packed.form, packed.to_bytes())\n"
        "    assert back['d'][0] is back['d'][1] is back['m']['x']\n"
        "    assert type(back['m']) is Items and type(back['d'][0]) is Drain, 'the same class each time'\n"
        "    dumps([drain, numpy.arange(4)])\n"
        "    print(drain.asked)\n"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True).stdout.split() == ["2", "2"]


@pytest.mark.parametrize("error", [AttributeError, ImportError, TypeError, pickle.PicklingError])
def test_an_error_of_a_reducer_is_raised_by_its_first_call(error):
    class Fails:
        asked = 0

        def __reduce__(self):
            Fails.asked += 1
            raise error("its own")

    with pytest.raises(error, match="its own"):
        serialize([Fails(), lambda: 1])
    assert Fails.asked == 1


def test_refs_and_what_is_left_out_are_noted_once_beside_what_is_pickled_by_value():
    class Ref:
        def __reduce__(self):
            note_ref(self)
            return Ref, ()

    class Tensor:
        pass

    ref, tensor = Ref(), Tensor()
    left: list[object] = []
    packed = serialize([ref, tensor, lambda: 1, ref, "__main__", tensor], leave=left, leave_type=Tensor)
    assert packed.refs == [ref]
    assert left == [tensor]


def test_pickles_have_writable_arrays_inside():
    numbers, tail = pickle.loads(dumps([numpy.arange(5), lambda: 1]))
    numbers[0] = 7
    assert list(numbers) == [7, 1, 2, 3, 4]
    assert tail() == 1


def test_reducers_that_change_are_followed():
    class Odd:
        pass

    for number in range(3):
        register_serializer(Odd, lambda _value, number=number: number, lambda number: number)
        assert round_trip([Odd()]) == [number]
    deregister_serializer(Odd)
    copyreg.pickle(Odd, lambda _value: (int, ("8",)))
    try:
        assert round_trip([Odd()]) == [8]
    finally:
        del copyreg.dispatch_table[Odd]
    assert isinstance(round_trip([Odd()])[0], Odd)


def test_functions_that_share_their_globals_share_them_where_they_arrive():
    names: dict[str, object] = {"__name__": "__main__", "count": 0}
    exec("def add():\n    global count\n    count += 1\n\n\ndef read():\n    return count\n", names)
    add, read = round_trip([names["add"], names["read"]])
    add()
    assert read() == 1


def test_what_passes_for_a_function_has_its_own_way():
    value = round_trip([Passing(numpy.sum), lambda: 1])[0]
    assert isinstance(value, type(lambda: 1))
    assert type(value) is Passing


class Passing:
    """A proxy whose class is that of functions, and that has nothing of them."""

    def __init__(self, function):
        self.function = function

    @property
    def __class__(self):
        return type(remade)

    def __reduce__(self):
        return Passing, (self.function,)


def test_classes_that_were_sent_are_not_kept():
    class Local:
        pass

    seen = weakref.ref(Local)
    serialize([Local() for _ in range(3)])
    # cloudpickle keeps the classes that it has pickled by value, by their ids.
    vars(cloudpickle.cloudpickle)["_DYNAMIC_CLASS_TRACKER_BY_ID"].clear()
    del Local
    gc.collect()
    assert seen() is None


def test_the_state_of_what_answers_for_its_attributes_is_put_back_as_it_was():
    class Loose:
        __slots__ = ("__dict__", "held")

        def __init__(self):
            self.held = 1
            self.kept = [self]

        def __getattr__(self, name):
            raise AttributeError(f"{name}, and nothing but {self.held}")

        def __setattr__(self, name, value):
            object.__setattr__(self, name, value if self is not value and name in ("held", "kept") else self.held)

    arrived = round_trip(Loose())
    assert arrived.held == 1
    assert arrived.kept == [arrived]
    assert round_trip(Mapping(a=1, asked=Asked()))["a"] == 1


def test_a_form_that_no_value_has_is_refused():
    with pytest.raises(ValueError, match="no value has form 77"):
        deserialize(77, b"")
