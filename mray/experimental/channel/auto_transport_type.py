"""Ray's module for AutoTransportType."""

from mray._api.type_hint import AutoTransportType

__all__ = ["AutoTransportType"]
