"""``python -m mray`` is the command ``mray``."""

from __future__ import annotations

import sys

from mray.cli import main

if __name__ == "__main__":
    sys.exit(main())
