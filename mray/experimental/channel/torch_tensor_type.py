"""Ray's module for TorchTensorType."""

from mray._api.type_hint import TorchTensorType

__all__ = ["TorchTensorType"]
