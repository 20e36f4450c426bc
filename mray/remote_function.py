"""The class of remote functions, under Ray's name of the module."""

from mray._api.remote_function import RemoteFunction

__all__ = ["RemoteFunction"]
