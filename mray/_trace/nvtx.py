"""Ranges for NVIDIA's tools, through the package ``nvtx``: a graph's loop in Nsight Systems.

In an actor's main thread, in a separate domain with colours by kind.
"""

from __future__ import annotations

from typing import Any

from mray._trace.kinds import COMPUTE, DESERIALIZE, READ_WAIT, SERIALIZE, WRITE_WAIT

DOMAIN = "mray"
COLOURS = {COMPUTE: "green", DESERIALIZE: "blue", SERIALIZE: "orange", READ_WAIT: "darkgrey", WRITE_WAIT: "red"}


def nvtx_domain() -> Any:
    """The domain. Raises ImportError with installation advice if ``nvtx`` is missing."""
    try:
        import nvtx  # noqa: PLC0415
    except ImportError as error:
        raise ImportError("Please install nvtx to enable nsight profiling. You can install it by running `pip install nvtx`.") from error
    return nvtx.get_domain(DOMAIN)


class NvtxRanges:
    """The ranges of one program in a domain, which tests may replace."""

    def __init__(self, domain: Any) -> None:
        self._domain = domain
        self._attributes: dict[tuple[str, str], Any] = {}

    def _of(self, kind: str, name: str) -> Any:
        attributes = self._attributes.get((kind, name))
        if attributes is None:
            made = self._domain.get_event_attributes(message=f"{kind}: {name}", color=COLOURS.get(kind, "white"), category=kind)
            attributes = self._attributes[kind, name] = made
        return attributes

    def push(self, kind: str, name: str) -> Any:
        self._domain.push_range(self._of(kind, name))

    def pop(self, _token: Any) -> None:
        self._domain.pop_range()

    def start(self, kind: str, name: str) -> Any:
        return self._domain.start_range(self._of(kind, name))

    def stop(self, token: Any) -> None:
        self._domain.end_range(token)
