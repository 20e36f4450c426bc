"""Type hints of graph edges: how the tensors in a DAG node's result travel, and where they arrive.

Plain data, attached by `DAGNode.with_tensor_transport` and `DAGNode.with_type_hint`; the compiler picks the mechanism.

====================  =================  ==============================================================================
asked for             ``transport``      ``mechanism``: what the user named, and the compiler must use or refuse
====================  =================  ==============================================================================
``"auto"``            ``"auto"``         None: whatever is fastest
``"shm"``             ``"auto"``         ``"shm"``, host memory
``"cpu"``             ``"cpu"``          None: a communicator of the CPU
``"accelerator"``     ``"accelerator"``  None: device memory, with the communicator registered for it
``"nccl"``            ``"accelerator"``  ``"nccl"``
``"cuda_ipc"``        ``"accelerator"``  ``"cuda_ipc"``
a `Communicator`      its own            None: that communicator
====================  =================  ==============================================================================
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from mray._api.communicator import Communicator

__all__ = ["AutoTransportType", "ChannelOutputType", "Device", "TorchTensorType", "tensor_transport"]

_MECHANISMS = {"shm": "auto", "nccl": "accelerator", "cuda_ipc": "accelerator"}


class Device(Enum):
    """The target device of a received tensor."""

    #: The kind of device it was sent from.
    DEFAULT = "default"
    CPU = "cpu"
    GPU = "gpu"
    CUDA = "cuda"

    def __str__(self) -> str:
        return self.value


class ChannelOutputType:
    """A hint about the values that a DAG node returns: in this base class, none."""

    def register_custom_serializer(self) -> None:
        """No-op, for programs that call it: tensors are serialized without registration."""

    def requires_accelerator(self) -> bool:
        """Whether values must travel through device memory."""
        return False

    def get_custom_communicator(self) -> Communicator | None:
        """The communicator that the user demands, or None."""
        return None

    def set_communicator_id(self, group_id: str) -> None:
        """Set the communicator that carries the values. Raises NotImplementedError where none can."""
        raise NotImplementedError


class _TensorHint(ChannelOutputType):
    def __init__(self, device: Device, static_shape: bool, direct_return: bool) -> None:
        self.device = device
        #: Every execution has tensors of the same shapes and dtypes.
        self.static_shape = static_shape
        #: The value is one tensor, and not a structure that holds tensors.
        self.direct_return = direct_return


class TorchTensorType(_TensorHint):
    """The values hold torch tensors that travel by `transport`; see the table above.

    With `_static_shape` the first execution fixes all shapes and dtypes, and with `_direct_return` the value must be a tensor itself; an
    execution that breaks the promise ends the graph. Raises ValueError for an unknown transport, and for one through device memory to
    the CPU.
    """

    AUTO = "auto"
    CPU = "cpu"
    ACCELERATOR = "accelerator"

    def __init__(
        self,
        transport: str | Communicator | None = AUTO,
        device: Device = Device.DEFAULT,
        _static_shape: bool = False,
        _direct_return: bool | None = False,
    ) -> None:
        super().__init__(device, _static_shape, bool(_direct_return))
        #: The mechanism that the user demands, or None.
        self.mechanism: str | None = None
        self._communicator: Communicator | None = None
        #: None until the graph is compiled.
        self.communicator_id: str | None = None
        if isinstance(transport, Communicator):
            self._communicator = transport
            transport = transport.get_transport_name()
        elif isinstance(transport, str) and transport in _MECHANISMS:
            self.mechanism, transport = transport, _MECHANISMS[transport]
        if transport not in (self.AUTO, self.CPU, self.ACCELERATOR):
            raise ValueError("`transport` must be TorchTensorType.AUTO, TorchTensorType.ACCELERATOR or TorchTensorType.CPU")
        if device is Device.CPU and transport == self.ACCELERATOR:
            raise ValueError("accelerator transport is not supported with CPU target device.")
        #: ``"auto"``, ``"cpu"`` or ``"accelerator"``.
        self.transport: str = transport

    def requires_accelerator(self) -> bool:
        return self.transport == self.ACCELERATOR

    def get_custom_communicator(self) -> Communicator | None:
        return self._communicator

    def set_communicator_id(self, group_id: str) -> None:
        self.communicator_id = group_id

    def __deepcopy__(self, memo: dict[int, Any]) -> TorchTensorType:
        """A copy with the same communicator: a group of processes has no second instance."""
        copied = TorchTensorType.__new__(type(self))
        copied.__dict__.update(self.__dict__)
        return copied

    def __repr__(self) -> str:
        what = self._communicator if self._communicator is not None else self.mechanism or self.transport
        return f"{type(self).__name__}(transport={what!r}, device={str(self.device)!r}{_flags(self)})"


class AutoTransportType(_TensorHint):
    """The values hold torch tensors whose transport the compiler picks, edge by edge."""

    def __init__(self, device: Device = Device.DEFAULT, _static_shape: bool = False, _direct_return: bool = False) -> None:
        super().__init__(device, _static_shape, _direct_return)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(device={str(self.device)!r}{_flags(self)})"


def _flags(hint: _TensorHint) -> str:
    return (", _static_shape=True" if hint.static_shape else "") + (", _direct_return=True" if hint.direct_return else "")


def tensor_transport(
    transport: str | Communicator | None, device: str | Device, static_shape: bool, direct_return: bool
) -> AutoTransportType | TorchTensorType:
    """The hint that `DAGNode.with_tensor_transport` means. Raises ValueError for an unknown transport."""
    try:
        device = Device(device)
    except ValueError:
        valid = ", ".join(f"'{known.value}'" for known in Device)
        raise ValueError(f"Invalid device '{device}'. Valid options are: {valid}.") from None
    if transport == "auto":
        return AutoTransportType(device, static_shape, direct_return)
    if not isinstance(transport, Communicator) and transport not in ("accelerator", "cpu", *_MECHANISMS):
        raise ValueError(
            f"Invalid transport type: {transport}. Transport must be one of 'auto', 'nccl', 'shm', 'accelerator' or an instance of "
            "Communicator type; mray has 'cuda_ipc' and 'cpu', too."
        )
    return TorchTensorType(transport, device, static_shape, direct_return)
