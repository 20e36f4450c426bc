"""The version of the package, which `pyproject.toml` reads here, and that of Ray."""

from __future__ import annotations

import sys

__version__ = "0.1.0"

#: Of Ray whose API this is: what programs find under the name ``ray`` that ask for its version.
RAY_VERSION = "2.60.0"
#: The commit of that release.
RAY_COMMIT = "b7f4259e944bf6959f721b106adc366ddfa0c356"


def versions() -> list[str]:
    """The versions of this process's Python and mray: those of all processes of a session are the same."""
    return [".".join(map(str, sys.version_info[:2])), __version__]
