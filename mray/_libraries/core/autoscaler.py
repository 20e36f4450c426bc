"""``ray.autoscaler.sdk``: requests for more machines. There is one."""

from __future__ import annotations

from typing import Any

__all__ = ["request_resources"]


def request_resources(
    num_cpus: int | None = None, bundles: list[dict[str, float]] | None = None, bundle_label_selectors: list[dict[str, str]] | None = None
) -> None:
    """Accept a request, without effect.

    Raises TypeError for an invalid number of CPUs, or bundles that are no dicts of numbers.
    """
    if num_cpus is not None and not isinstance(num_cpus, int):
        raise TypeError("num_cpus should be of type int.")
    for bundle in _a_list(bundles, "bundles"):
        if not isinstance(bundle, dict):
            raise TypeError("each bundle should be a Dict.")
        for name, amount in bundle.items():
            if not isinstance(name, str):
                raise TypeError("each bundle key should be str.")
            if isinstance(amount, bool) or not isinstance(amount, (int, float)):
                raise TypeError("each bundle value should be a number (int or float).")


def _a_list(given: Any, name: str) -> list[Any]:
    if given is not None and not isinstance(given, list):
        raise TypeError(f"{name} should be of type List")
    return given or []
