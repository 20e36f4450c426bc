"""Importing this module has the effect of `mray.as_ray`, and makes Ray's own libraries (``ray.data``, ``ray.tune`` and others) run on mray.

They are files of the installed package ``ray``, of the version whose API mray has. Before the first ``import ray``::

    import mray.libraries

``mray run --libraries`` and ``MRAY_LIBRARIES=1`` do the same. Raises ImportError when the package is not installed, or in another
version.
"""

from __future__ import annotations

import importlib
import sys

from mray._common import settings
from mray._libraries import head_start, installed

installed.use()
importlib.import_module("mray.as_ray")
settings.preload_everywhere(__name__)
head_start.once_for(sys._getframe().f_back)


def load_ipython_extension(_shell: object) -> None:
    """For ``%load_ext mray.libraries``. No-op: importing the module already has the effect."""
