"""Imported for its effect: from here on ``import ray`` means mray in this process.

``mray run`` names this module in the session's preload, so that the zygote, and with it every worker, has the alias
before any user code runs.
"""

from __future__ import annotations

from mray.cli import alias

alias.install()
