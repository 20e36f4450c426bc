"""Accelerators: the devices of this process, and the communicator that moves tensors between them.

Devices of a kind that mray does not know are registered with `register_accelerator_context`, once in the process that compiles graphs.
"""

from __future__ import annotations

import contextlib
import importlib
from typing import Any

from mray._api.accelerator_transport import register_accelerator, registered_accelerator
from mray._api.communicator import Communicator
from mray._api.context import get_runtime_context
from mray._api.verbs import get_gpu_ids
from mray.experimental.channel.cpu_communicator import CPUCommunicator
from mray.experimental.channel.nccl_group import _NcclGroup

__all__ = ["AcceleratorContext", "is_accelerator_context_registered", "register_accelerator_context"]


class AcceleratorContext:
    """The devices of one kind in this process, their streams and their communicators."""

    def __init__(self, torch_module_name: str, communicator_cls: type[Communicator] | None) -> None:
        """`torch_module_name`: ``"cuda"`` for ``torch.cuda``, and so on; ``"cpu"`` for none. Raises ImportError when torch lacks it."""
        self._torch_module_name = torch_module_name
        self._communicator_cls = communicator_cls
        self._torch_module: Any = None if torch_module_name == "cpu" else importlib.import_module(f"torch.{torch_module_name}")

    @staticmethod
    def get() -> AcceleratorContext:
        """The registered class; otherwise CUDA where this process has GPUs, and the CPU where it has none."""
        accelerator = registered_accelerator()
        if accelerator is not None:
            return AcceleratorContext(accelerator.torch_module_name, accelerator.communicator_cls)
        return AcceleratorContext("cuda", _NcclGroup) if get_gpu_ids() else AcceleratorContext("cpu", CPUCommunicator)

    @staticmethod
    def set(accelerator_context: AcceleratorContext) -> None:
        """Register the kind of device and the communicator of a context. TypeError when it has no communicator."""
        register_accelerator(accelerator_context.module_name, accelerator_context.communicator_cls)

    def get_accelerator_devices(self) -> list[Any]:
        """The devices assigned to this process, as `torch.device`; the first one if none is assigned, as in a driver."""
        import torch  # noqa: PLC0415

        if self._torch_module_name == "cpu":
            return [torch.device("cpu")]
        # A process sees only the devices that are assigned to it, numbered from 0.
        return [torch.device(f"{self._torch_module_name}:{index}") for index in range(self.accelerator_count or 1)]

    def get_device_context(self, device: Any) -> Any:
        """A context manager that makes `device` the current one; no-op for the CPU."""
        return contextlib.nullcontext() if device.type == "cpu" else self._torch_module.device(device)

    def current_stream(self) -> Any:
        """The stream that this thread's work is queued on; None on the CPU."""
        return None if self._torch_module is None else self._torch_module.current_stream()

    def create_event(self) -> Any:
        """A new event of the device. Raises RuntimeError on the CPU."""
        if self._torch_module is None:
            raise RuntimeError("The CPU has no events: what it was asked for is done when the call returns.")
        return self._torch_module.Event()

    def generate_communicator_id(self) -> Any:
        return self._communicator().generate_communicator_id()

    def create_communicator(self, *args: Any, **kwargs: Any) -> Communicator:
        """A communicator of the registered class."""
        return self._communicator()(*args, **kwargs)

    def _communicator(self) -> type[Communicator]:
        if self._communicator_cls is None:
            raise RuntimeError(
                f"No communicator is registered for {self._torch_module_name!r}: register_accelerator_context names one. Graphs choose "
                "their own where none is registered."
            )
        return self._communicator_cls

    @property
    def module_name(self) -> str:
        return self._torch_module_name

    @property
    def communicator_cls(self) -> type[Communicator] | None:
        """The class of communicators; None: chosen by the compiler."""
        return self._communicator_cls

    @property
    def accelerator_count(self) -> int:
        if self._torch_module_name == "cuda":
            return len(get_gpu_ids())
        return len(get_runtime_context().get_accelerator_ids().get(self._torch_module_name.upper(), []))


def register_accelerator_context(torch_module_name: str, communicator_cls: type[Communicator]) -> None:
    """Use this class of communicators for edges and collectives of ``transport="accelerator"`` in graphs that are compiled afterwards.

    `torch_module_name`: the kind of device, such as ``"cuda"`` or ``"npu"``; ImportError when torch has no such module.
    """
    AcceleratorContext.set(AcceleratorContext(torch_module_name, communicator_cls))


def is_accelerator_context_registered() -> bool:
    """Whether this process has registered one."""
    return registered_accelerator() is not None
