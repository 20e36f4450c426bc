"""The contract of devices (`tests/conformance/test_device.py`), on real GPUs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conformance import test_device as contract
from tests.conformance.device_kinds import Peer

# Its tests with the fixtures of this folder: there is one row here.
globals().update({name: test for name, test in vars(contract).items() if name.startswith("test_")})


peers = contract.peers


@pytest.fixture
def peer(start_peer: Callable[[], Peer]) -> Peer:
    return start_peer()
