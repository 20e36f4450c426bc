"""Graphs whose tensors go between several GPUs: the tests of `tests/gpu/several_rows.py` on pretended ones."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest

from bench.gpu_work import NullWork, Work
from mray._device.platform import forget_platform

pytest.register_assert_rewrite("tests.gpu.several_rows")  # before the import

from tests.gpu import several_rows  # noqa: E402
from tests.gpu.several_rows import gpus, session  # noqa: E402

__all__ = ["gpus", "session"]

pytestmark = pytest.mark.only("mray")

globals().update({name: test for name, test in vars(several_rows).items() if name.startswith("test_")})


@pytest.fixture(scope="module")
def count() -> int:
    return 5


@pytest.fixture(scope="module")
def work() -> Iterator[Work]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MRAY_NULL_DEVICES", f"5,scope=several{os.getpid()}")
        forget_platform()
        yield NullWork()
        gc.collect()
        forget_platform()
