"""The logger of everything here. Programs set its level with `init(logging_level=...)` or through `logging`."""

from __future__ import annotations

import logging

logger = logging.getLogger("mray")
