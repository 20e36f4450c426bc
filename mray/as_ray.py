"""Importing this module makes ``import ray`` mean mray, in this process and in the workers of its sessions.

For notebooks and test suites, before the first ``import ray``::

    %load_ext mray.as_ray       # in a notebook
    import mray.as_ray          # anywhere

``mray run`` and ``MRAY_AS_RAY=1`` do the same. ImportError when the real Ray is already imported.
"""

from __future__ import annotations

from mray._common import settings
from mray._libraries import facade, spawned

facade.install()
spawned.tell_spawned()
# The zygote imports it before any user code runs, so every worker has it.
settings.preload_everywhere(__name__)


def load_ipython_extension(_shell: object) -> None:
    """For ``%load_ext mray.as_ray``. No-op: importing the module has the effect."""
