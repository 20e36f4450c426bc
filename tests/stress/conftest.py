"""How much the stress tests do: little in the quick suite, the full counts with ``MRAY_TEST_FULL=1``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType

import pytest

from tests.full import FULL


@pytest.fixture(scope="session")
def full() -> bool:
    return FULL


@pytest.fixture
def count() -> Callable[[int, int], int]:
    """``count(quick, all)``: how many, in this run."""
    return lambda quick, everything: everything if FULL else quick


@pytest.fixture
def ray() -> Iterator[ModuleType]:
    """mray, with a session of 2 CPUs that ends with the test."""
    import mray

    mray.init(num_cpus=2, logging_level="ERROR")
    yield mray
    mray.shutdown()
