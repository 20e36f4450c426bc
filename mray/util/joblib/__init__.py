"""joblib on actors: ``register_mray()``, then ``with joblib.parallel_config("mray"):`` around code that uses joblib, such as
scikit-learn.
"""

from __future__ import annotations

__all__ = ["register_mray", "register_ray"]


def register_mray() -> None:
    """Register ``"mray"`` with `joblib.parallel_config` and `joblib.parallel_backend`; ImportError without joblib."""
    _register("mray")


def register_ray() -> None:
    """Register it as ``"ray"``, the name in programs written for Ray."""
    _register("ray")


def _register(name: str) -> None:
    from joblib.parallel import register_parallel_backend  # noqa: PLC0415  (optional)

    from mray.util.joblib._backend import MrayBackend  # noqa: PLC0415  (it imports joblib)

    register_parallel_backend(name, MrayBackend)
