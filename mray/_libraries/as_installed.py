"""The package ``ray`` for `importlib.metadata`, in a process that has mray by that name."""

from __future__ import annotations

from importlib.metadata import Distribution
from typing import NoReturn

from mray._common import settings
from mray._libraries.names import RAY

_FILES = {
    "METADATA": f"Metadata-Version: 2.1\nName: {RAY}\nVersion: {settings.AS_VERSION.get()}\nSummary: mray, behind this name\n",
    "top_level.txt": f"{RAY}\n",
}


class InstalledRay(Distribution):
    def read_text(self, filename: str) -> str | None:
        return _FILES.get(filename)

    def locate_file(self, path: object) -> NoReturn:
        raise FileNotFoundError(f"{RAY} is mray here, and has no files: {path}")
