"""The version of the package, which `pyproject.toml` reads here, and that of Ray."""

from __future__ import annotations

import sys

__version__ = "0.1.0"

#: The Ray whose API this is.
RAY_VERSION = "2.60.0"
RAY_COMMIT = "b7f4259e944bf6959f721b106adc366ddfa0c356"


def versions() -> list[str]:
    """Versions of Python and mray, which all processes of a session share."""
    return [".".join(map(str, sys.version_info[:2])), __version__]
