"""The engine that passes every call to real Ray: the same program on a cluster.

::

    driver                                             a worker of Ray, on any node
    mray's verbs ─▶ RayBackend ─▶ ray ═══════════════▶ wrapper ─▶ user's function or actor ─▶ mray's verbs ─▶ RayBackend ─▶ ray
                    refs, options, errors               (`wrappers`: unpickled first, installs the backend (`ray_backend.arrive`))
                    translated

Only this package imports ray. A `mray.ObjectRef` wraps a ``ray.ObjectRef`` and pickles as that, so that Ray counts it in values and
closures; top-level arguments are passed as Ray's refs, which Ray resolves. The same holds for handles of actors.

Ray runs a *wrapper* of the user's function or class, pickled by value under the user's name. It carries the user's code as bytes,
which a worker unpickles after it has checked mray's version and installed its backend. Exceptions of user code are unchanged, so that
Ray's ``retry_exceptions`` matches them.

Rejected: running Ray's workers with a patched pickler, which is private; one generic remote function for all (Ray's dashboards, errors,
retries and concurrency groups go by function and class); Ray's client (``ray://``), whose pickles are of its own kind.
"""

try:
    import ray as _ray
except ImportError as _error:
    raise ImportError(
        "this address names a Ray cluster, and the package ray cannot be imported in this process "
        f'({_error}). Install it: pip install "mray[ray]"; or start a session of mray\'s own: init(address="local").'
    ) from _error

if _ray.__spec__ is not None and _ray.__spec__.origin == "mray":
    raise ImportError(
        "this address names a Ray cluster, and `import ray` means mray in this process (mray run, mray.as_ray, MRAY_AS_RAY). Run the "
        'program with python: with Ray alone, or with `import mray as ray`; or start a session of mray\'s own: init(address="local").'
    )

from mray._backends.ray.ray_backend import RayBackend

__all__ = ["RayBackend", "start"]

start = RayBackend.start
