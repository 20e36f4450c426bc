"""For tests of code that uses mray. (With pytest, use `mray.pytest_plugin`.)

::

    class TestModel(unittest.TestCase):
        @classmethod
        def setUpClass(cls):
            mray.init(num_cpus=2)

        def tearDown(self):
            mray.util.testing.reset()

        @classmethod
        def tearDownClass(cls):
            mray.shutdown()
"""

from __future__ import annotations

from mray._api import current

__all__ = ["reset"]


def reset() -> None:
    """Reset the running session: end and forget everything that this driver has requested.

    Tasks are cancelled, actors (detached ones too) killed, objects freed; names, placement groups and `internal_kv` are empty again.
    The node and idle workers stay, with changes that tasks have made to modules. Returns when no process runs and no resource is
    taken.

    Afterwards earlier refs raise ValueError, calls of earlier actors `RayActorError`, and other waiting threads RaySystemError. No
    other thread of this process may be about to use mray. RaySystemError without a session, and in a worker. A session that other
    drivers share, or of another engine, is replaced by one with the same options.
    """
    current.reset()
