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
    """Begin anew in the running session: all that this driver has asked for ends, and nothing of it is found any more.

    Tasks are cancelled, actors (detached ones too) killed, objects freed; names, placement groups and `internal_kv` are empty again. Node
    and idle workers stay, and with them what a task has changed in the modules of its worker. Returns when no process and no resource is
    taken any more: in 0.5 to 3 ms when nothing runs, some milliseconds later when there are processes to end.

    Refs from before the reset raise ValueError, calls of actors from before it `RayActorError`, other threads that wait RaySystemError, at
    once. Call it when no other thread of this process is about to use mray. RaySystemError when there is no session, and in a worker. A
    session that other drivers share, and engines other than the native one, end, and another one is started with the same options.
    """
    current.reset()
