"""Arrays of pretended GPUs between interpreters: they stay in device memory."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

from mray._device.platform import forget_platform, platform
from mray._gpu.cuda_ipc import trim_pools
from mray.proxy import IRemoteInterpreter, RemoteInterpreterFactory

# Pretended GPUs are mray's. On Ray, values of GPUs go by its object store.
pytestmark = pytest.mark.only("mray")

SCOPE = f"test-proxy-devices-{os.getpid()}"


@pytest.fixture
def interpreters(fresh: ModuleType, init: Any, monkeypatch: pytest.MonkeyPatch, eventually: Any) -> Iterator[Callable[..., Any]]:
    """Starts a session of a machine with these pretended devices: two interpreters, each on this share of one."""

    def begin(devices: str, num_gpus: float = 0.5) -> list[IRemoteInterpreter]:
        forget_platform()
        monkeypatch.setenv("MRAY_NULL_DEVICES", f"{devices},scope={SCOPE}")
        init(num_cpus=2, num_gpus=2)
        rif = RemoteInterpreterFactory(fresh)
        return [rif.create(num_cpus=0, num_gpus=num_gpus) for _ in range(2)]

    yield begin
    fresh.shutdown()
    gc.collect()
    eventually(trim_pools)
    monkeypatch.undo()
    forget_platform()


def traffic() -> dict[str, int]:
    """At an interpreter: arrays that came as views and as copies, loans that are out, and how often this host waited for a device."""
    from mray._api.current import current_backend
    from mray._device.platform import platform

    loans = current_backend().client.tensors._loans
    imports = loans._imports.values()
    return {
        "viewed": sum(each.viewed for each in imports),
        "copied": sum(each.copied for each in imports),
        "lent": loans._lent.out,
        # An array becomes bytes of the host by waiting for it.
        "waits": platform().synchronizations,
    }


def of(env: IRemoteInterpreter) -> dict[str, int]:
    return env.run(traffic).fetch()  # type: ignore[no-any-return]


def test_an_array_goes_from_interpreter_to_interpreter_without_the_host(interpreters: Callable[..., Any]) -> None:
    a, b = interpreters("1,late=0.002")
    x, y = a.module("mray.testing.null").full(1000, 2.0), b.module("mray.testing.null").full(1000, 1.0)
    y += x
    y += b.run(lambda values: values["in"][0], ({"in": [x, 5]},))
    y.size.fetch()
    assert of(a)["waits"] == of(b)["waits"] == 0
    assert (of(b)["viewed"], of(b)["copied"]) == (2, 0)
    assert float(y.sum()) == 5000


def test_what_is_fetched_inside_of_an_interpreter_stays_on_the_device(interpreters: Callable[..., Any]) -> None:
    a, b = interpreters("1")
    x = a.module("mray.testing.null").full(1000, 2.0)

    class Box:
        def __init__(self, var: Any) -> None:
            self.var = var

    there = b.run(lambda box: box.var.fetch(), (Box(x),))
    there.size.fetch()
    assert of(a)["waits"] == of(b)["waits"] == 0
    assert of(b)["viewed"] == 1
    # And one that runs in the array's own interpreter passes it on as well.
    kept = b.put([])
    a.run(lambda box, kept: kept.var.append(box.var).fetch(), (Box(x), Box(kept))).fetch()
    assert kept[0].size.fetch() == 1000
    assert of(a)["waits"] == of(b)["waits"] == 0
    assert float((kept[0] + there).sum()) == 4000


def test_steps_that_write_later_are_not_seen_by_the_receiver(interpreters: Callable[..., Any]) -> None:
    a, b = interpreters("1,late=0.002")
    null = a.module("mray.testing.null")
    keep = b.put(lambda array: [array])
    for value in range(5):
        x = null.full(1000, float(value))
        there = keep(x)
        x += 100
        there[0] += 10
        assert float(there[0].sum()) == 1000 * (value + 10)
        assert float(x.sum()) == 1000 * (value + 100)


def test_memory_that_was_lent_is_given_back(interpreters: Callable[..., Any], eventually: Any) -> None:
    a, b = interpreters("1,memory=268435456")
    null = a.module("mray.testing.null")
    total = b.put(lambda array: array.sum())
    for value in range(30):  # 30 times 32 MiB, and a copy, on a device of 256
        x = null.full(1 << 23, float(value))
        assert float(total(x)) == value * (1 << 23)
    kept = b.put(lambda array: array)(x)
    kept.size.fetch()
    eventually(lambda: of(a)["lent"] == 1)
    del kept, x
    eventually(lambda: of(a)["lent"] == 0)


def test_arrays_without_a_way_between_their_devices_go_through_the_host(interpreters: Callable[..., Any]) -> None:
    a, b = interpreters("2,peer=0", num_gpus=1)
    x, y = a.module("mray.testing.null").full(1000, 2.0), b.module("mray.testing.null").full(1000, 1.0)
    assert float((y + b.run(lambda array: array.numpy(), (x,)).sum()).sum()) == 2001 * 1000


def test_an_interpreter_that_dies_leaves_nothing_lent(interpreters: Callable[..., Any], eventually: Any) -> None:
    a, b = interpreters("1")
    x = a.module("mray.testing.null").full(1 << 20, 2.0)
    kept = b.put(lambda array: [array])(x)
    kept[0].size.fetch()
    assert of(a)["lent"] == 1
    b.destroy()
    eventually(lambda: of(a)["lent"] == 0)
    assert float(x.sum()) == 2 << 20
    assert platform().devices[0].memory()[0] > 0
