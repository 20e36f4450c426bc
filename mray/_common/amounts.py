"""Amounts of memory and of other resources, as texts show them."""

from __future__ import annotations

#: Resources that are counted in bytes.
BYTES = ("memory", "object_store_memory")


def readable_bytes(count: float) -> str:
    """A size with its unit: ``1.500 MiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3f} {unit}"
        count /= 1024
    return f"{count:.3f} TiB"


def readable(resource: str, quantity: float) -> str:
    """Bytes with their unit, other amounts without an exponent."""
    return readable_bytes(quantity) if resource in BYTES else f"{quantity:.15g}"
