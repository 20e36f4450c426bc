"""The version of the package, which `pyproject.toml` reads here, and that of Ray."""

from __future__ import annotations

import sys

__version__ = "0.1.0"

#: The Ray whose API this is: the version of the module ``ray`` for programs that ask.
RAY_VERSION = "2.60.0"
#: The commit of that release.
RAY_COMMIT = "b7f4259e944bf6959f721b106adc366ddfa0c356"


def versions() -> list[str]:
    """The versions of this process's Python and mray, which are the same in all processes of a session."""
    return [".".join(map(str, sys.version_info[:2])), __version__]
