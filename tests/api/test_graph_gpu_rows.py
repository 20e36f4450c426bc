"""Graphs whose tensors stay on a GPU that the actors share: the tests of `tests/gpu/graph_rows.py` on a pretended one."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest

from bench.gpu_work import NullWork, Work
from mray._device.platform import forget_platform

pytest.register_assert_rewrite("tests.gpu.graph_rows")  # before the import

from tests.gpu import graph_rows  # noqa: E402
from tests.gpu.graph_rows import actor, pair, session, shared  # noqa: E402

__all__ = ["actor", "pair", "session", "shared"]

pytestmark = pytest.mark.only("mray")

globals().update({name: test for name, test in vars(graph_rows).items() if name.startswith("test_")})


@pytest.fixture(scope="module")
def work() -> Iterator[Work]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MRAY_NULL_DEVICES", f"1,scope=graphs{os.getpid()}")
        forget_platform()
        yield NullWork()
        gc.collect()
        forget_platform()
