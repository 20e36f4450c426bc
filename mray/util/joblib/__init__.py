"""joblib on actors: ``register_mray()``, and then ``with joblib.parallel_config("mray"):`` around what uses joblib, scikit-learn above all.

For users; needs the package joblib. See `mray.util.joblib._backend`.
"""

from __future__ import annotations

__all__ = ["register_mray", "register_ray"]


def register_mray() -> None:
    """Make ``"mray"`` a name that `joblib.parallel_config` and `joblib.parallel_backend` know; ImportError without joblib."""
    _register("mray")


def register_ray() -> None:
    """The same under the name that programs written for Ray use, ``"ray"``."""
    _register("ray")


def _register(name: str) -> None:
    from joblib.parallel import register_parallel_backend  # noqa: PLC0415  (optional)

    from mray.util.joblib._backend import MrayBackend  # noqa: PLC0415  (it imports joblib)

    register_parallel_backend(name, MrayBackend)
