"""For tests of code that uses mray. (With pytest, `mray.pytest_plugin` does this by itself.)

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

    Tasks are cancelled, actors (detached ones too) killed, objects freed; names, placement groups and `internal_kv` are empty again. The
    node and idle workers stay, with the changes that tasks have made to the modules of their workers. Returns when no process runs and
    no resource is taken any more.

    Afterwards refs from before the reset raise ValueError, calls of actors from before it `RayActorError`, and other waiting threads
    RaySystemError, immediately. No other thread of this process may be about to use mray. RaySystemError without a session, and in a
    worker. A session that other drivers share, or of an engine other than the native one, is ended, and another one is started with the
    same options.
    """
    current.reset()
