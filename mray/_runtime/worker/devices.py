"""The devices of a worker's task or actor, by the variables that restrict libraries to them. On the main thread, before user code runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mray._common import settings
from mray._common.accelerator_kinds import KINDS, variables_of, visible
from mray._common.kept import os


class Devices:
    """The variables of one worker's devices; accelerators' are restored before the next task."""

    def __init__(self, assign: Callable[[str, str | None], None]) -> None:
        """`assign` sets a variable of the process; None removes it."""
        self._assign = assign
        #: Previous values of accelerators' variables.
        self._before: dict[str, str | None] = {}
        self._is_client = False

    def show(self, gpu_ids: Sequence[Any], accelerators: dict[str, list[int]], mps: tuple[str, str] = ("", "")) -> dict[str, list[str]]:
        """Show only these devices. Returns the ids of accelerators other than GPUs, by kind.

        `mps`: the folder of the MPS daemon whose client this process is to be, and the uuid of the GPU there; or two empty strings.
        """
        pipe, uuid = mps
        if pipe or self._is_client:
            self._assign("CUDA_MPS_PIPE_DIRECTORY", pipe or None)
            self._is_client = bool(pipe)
            # The daemon's devices have other numbers, and the same uuids.
            gpu_ids = [uuid] if pipe else gpu_ids
        hides = settings.ACCEL_ENV_VAR_OVERRIDE_ON_ZERO.get()
        if (gpu_ids or hides) and not settings.NOSET_CUDA_VISIBLE_DEVICES.get():
            self._assign("CUDA_VISIBLE_DEVICES", ",".join(str(gpu) for gpu in gpu_ids))
        while self._before:
            self._assign(*self._before.popitem())
        if not (accelerators or hides):
            return {}
        shown = {kind: visible(indices, os.environ.get(KINDS[kind].variable)) for kind, indices in accelerators.items()}
        for kind in KINDS if hides else shown:
            for name, value in variables_of(kind, shown.get(kind, ())).items():
                self._before[name] = os.environ.get(name)
                self._assign(name, value)
        return shown
