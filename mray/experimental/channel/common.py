"""Ray's module for ChannelOutputType."""

from mray._api.type_hint import ChannelOutputType

__all__ = ["ChannelOutputType"]
