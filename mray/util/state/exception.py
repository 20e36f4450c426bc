"""Errors of asking for the state of a session."""

from __future__ import annotations


class RayStateApiException(Exception):
    """The question could not be answered, or only in part."""


class ServerUnavailable(RayStateApiException):
    """There is no session to ask."""
