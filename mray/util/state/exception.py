"""Errors of queries for the state of a session."""

from __future__ import annotations


class RayStateApiException(Exception):
    """The query could not be answered, or only in part."""


class ServerUnavailable(RayStateApiException):
    """No session can be asked."""
