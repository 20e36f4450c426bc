"""Graphs whose tensors go between several real GPUs: the tests of `tests/gpu/several_rows.py`, on a machine that has two or more."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from bench.gpu_work import CudaWork, Work
from mray._ipc.discovery import machine_gpus

pytest.register_assert_rewrite("tests.gpu.several_rows")  # before the import

from tests.gpu import several_rows  # noqa: E402
from tests.gpu.several_rows import gpus, session  # noqa: E402

__all__ = ["gpus", "session"]

# torch, cupy and NVML warn of what does not concern us.
pytestmark = pytest.mark.filterwarnings("default")

globals().update({name: test for name, test in vars(several_rows).items() if name.startswith("test_")})


@pytest.fixture(scope="module")
def count() -> int:
    found = len(machine_gpus())
    if found < 2:
        pytest.skip(f"this machine has {found} GPU")
    return found


@pytest.fixture(scope="module")
def work() -> Iterator[Work]:
    pytest.importorskip("torch")
    yield CudaWork()
    gc.collect()
