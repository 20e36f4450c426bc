"""Ray's module for Communicator."""

from mray._api.communicator import Communicator, ReduceOp, TorchTensorAllocator

__all__ = ["Communicator", "ReduceOp", "TorchTensorAllocator"]
