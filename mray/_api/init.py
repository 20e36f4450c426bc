"""``init``: from the user's arguments to a running session, and the object that describes it."""

from __future__ import annotations

import importlib
import inspect
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from mray._api import current
from mray._api.current import backend_in_use, start, stop
from mray._api.logging_config import LoggingConfig
from mray._api.typed import InitOptions, Unpack
from mray._common import settings
from mray._common.log import configure_first, logger
from mray._common.nearest import nearest
from mray._common.options import SessionOptions, session_options
from mray._common.version import __version__

if TYPE_CHECKING:
    from mray._api.job_config import JobConfig

#: Arguments of Ray's `init` that have no effect on one host.
_MEANINGLESS = frozenset(
    {
        "include_dashboard",
        "dashboard_host",
        "dashboard_port",
        "enable_resource_isolation",
        "cgroup_path",
        "system_reserved_cpu",
        "system_reserved_memory",
        "proxy_server_url",
        "_enable_object_reconstruction",
        "_plasma_directory",
        "_driver_object_store_memory",
        "_redis_username",
        "_redis_password",
        "_tracing_startup_hook",
    }
)


#: Modules of a higher layer, loaded on demand.
EXPORTER, PAGE = "mray.cli.commands.metrics", "mray.cli.live"
#: The servers of this process's session, keyed by these modules.
_served: dict[str, Any] = {}
#: Called in the process that has started or joined a session.
after_init: list[Callable[[], None]] = []


class RayContext(Mapping[str, Any]):
    """The result of `init`: the session's attributes (``ctx["node_id"]``, ``ctx["session_dir"]``, ``ctx["address"]``, ...; all of them in
    `address_info`); as a context manager it ends the session.
    """

    def __init__(self, info: Mapping[str, Any]) -> None:
        page, metrics = _served.get(PAGE), _served.get(EXPORTER)
        address = info.get("address") or "local"
        self.address_info: dict[str, Any] = {
            "node_ip_address": info.get("node_ip_address"),
            "redis_address": None,
            "object_store_address": info.get("session_dir"),
            "raylet_socket_name": info.get("session_dir"),
            "webui_url": "",
            "session_dir": info.get("session_dir"),
            "metrics_export_port": -1 if metrics is None else int(metrics.server_port),
            "gcs_address": address,
            "address": address,
            "dashboard_agent_listen_port": -1,
            "node_id": as_hex(info.get("node_id")),
        }
        self.dashboard_url = "" if page is None else str(page.address)
        self.python_version = sys.version.partition(" ")[0]
        self.ray_version = settings.AS_VERSION.get()
        self.ray_commit = f"mray-{__version__}"

    def __getitem__(self, key: str) -> Any:
        return self.address_info[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.address_info)

    def __len__(self) -> int:
        return len(self.address_info)

    def __enter__(self) -> RayContext:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.disconnect()

    def disconnect(self) -> None:
        """End the session. Idempotent."""
        stop()

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return (
            f"RayContext(dashboard_url={self.dashboard_url!r}, python_version={self.python_version!r}, ray_version={self.ray_version!r}, "
            f"ray_commit={self.ray_commit!r})"
        )


def as_hex(value: Any) -> Any:
    """Ids as users see them."""
    return value.hex() if isinstance(value, bytes) else value


def init(
    address: str | None = None,
    *,
    num_cpus: float | None = None,
    num_gpus: float | None = None,
    resources: dict[str, float] | None = None,
    labels: dict[str, str] | None = None,
    object_store_memory: int | None = None,
    ignore_reinit_error: bool = False,
    logging_level: int | str | None = None,
    log_to_driver: bool | None = None,
    logging_config: LoggingConfig | None = None,
    namespace: str | None = None,
    runtime_env: dict[str, Any] | None = None,
    preload: list[str] | tuple[str, ...] | str = (),
    mps: str | None = None,
    local_mode: bool = False,
    web: bool | None = None,
    **others: Unpack[InitOptions],
) -> RayContext:
    """Start a session on this host, or join one; returns its facts when it is ready for work. Arguments of Ray's `init` are accepted.

    Without an `address`, and with ``"local"``, the session is this process's own and ends with it. ``"auto"`` joins the one that
    `mray start` has started, else that of a process above this one; a session's ``host:port`` or directory joins that one
    (``RAY_ADDRESS`` gives the default), as one of its drivers, whose own work ends with it. ConnectionError when it does not run,
    ValueError for arguments that only a new session can have. `_node_ip_address` replaces the address of the machine's route out.

    `num_cpus` and `num_gpus` default to what this process may use; `resources` are names of your own with quantities;
    `object_store_memory` bounds the shared memory of objects, in bytes: what comes above goes to disk, into `object_spilling_directory`
    (the session's own by default). `preload` names modules that every worker starts with; with "auto", those that the workers of this
    program's last session imported. `mps` is how processes share a GPU, by default MRAY_MPS: "off", in turns; "on", as clients of an MPS
    daemon that the session starts for each GPU that tasks or actors have fractions of; "auto", from the first compiled graph on that has
    edges between such actors. With MPS a fault of one of them ends the work of all on that GPU. RaySystemError for "on" where there can
    be none. `runtime_env={"env_vars": {...}}` holds for all tasks and actors. `log_to_driver=False` keeps their output from this
    process's. `logging_config` is how this process and all workers log. `web=True` (by default MRAY_WEB) serves a page about the
    session, for a browser of this machine and user; its address is logged, and is the `dashboard_url` of what is returned.

    `local_mode` runs everything in this process, one thing at a time, in an order that a seed fixes. An address that begins with
    ``ray:`` hands every call to real Ray: ``"ray:host:port"`` and ``"ray:auto"`` join a cluster, ``"ray:local"`` starts one on this
    machine.

    In a worker of a Ray cluster ``"local"`` starts a session of this machine's own within it, in which all later calls run, until
    `shutdown`.

    RuntimeError when there is a session already (unless `ignore_reinit_error`) and for unknown arguments. Arguments of Ray's that mean
    nothing on one host are named in a debug log.
    """
    configure_first(lambda: _configure_logging(logging_level, others.get("logging_format"), others.get("configure_logging", True)))
    unknown = [name for name in others if name not in _MEANINGLESS and name not in _PRIVATE]
    if unknown:
        known = [*inspect.signature(init).parameters, *_MEANINGLESS, *_PRIVATE]
        raise RuntimeError(f"Unknown keyword argument(s): {', '.join(unknown)}.{''.join(nearest(name, known) for name in unknown)}")
    if not isinstance(others.get("_system_config") or {}, dict):
        raise TypeError("The _system_config must be a dict.")
    port = _checked_port(others.get("_metrics_export_port"))
    backend = backend_in_use()
    if backend is not None and not (address == "local" and backend.has_sessions_within):
        if not ignore_reinit_error:
            raise RuntimeError(
                "Maybe you called ray.init twice by accident? This error can be suppressed by passing in 'ignore_reinit_error=True' or by "
                "calling 'ray.shutdown()' prior to 'ray.init()'."
            )
        logger.info("Calling ray.init() again after it has already been called.")
        if web and not backend.has_sessions_within:
            _serve_page()
        return RayContext(backend.info())
    job_config: JobConfig | None = others.get("job_config")
    encoding = settings.LOGGING_CONFIG_ENCODING.get()
    if job_config is not None:
        logging_config = logging_config or job_config.py_logging_config
        namespace = job_config.ray_namespace if namespace is None else namespace
    if logging_config is None and encoding:
        logging_config = LoggingConfig(encoding=encoding)
    if logging_config is not None:
        logging_config.apply()
    if not others.get("_skip_env_hook"):
        runtime_env = _from_hook(runtime_env)
    if runtime_env is None and job_config is not None:
        runtime_env = job_config.runtime_env or None
    ignored = sorted(_MEANINGLESS & others.keys())
    if ignored:
        logger.debug("init: %s have no effect on one host and are ignored", ", ".join(ignored))
    options = session_options(
        num_cpus=num_cpus,
        num_gpus=num_gpus,
        resources=resources,
        labels=labels,
        memory=others.get("_memory"),
        object_store_memory=object_store_memory,
        object_spilling_directory=others.get("object_spilling_directory"),
        namespace=namespace,
        runtime_env=runtime_env,
        log_to_driver=log_to_driver,
        logging_config=None if logging_config is None else logging_config.to_dict(),
        preload=preload,
        mps=mps,
        temp_dir=others.get("_temp_dir"),
        node_name=others.get("_node_name"),
        node_ip_address=others.get("_node_ip_address"),
        system_config=others.get("_system_config"),
        address=address,
        local_mode=local_mode,
    )
    if web is None:
        web = settings.WEB.get() and options.backend != "ray"
    if web and options.backend == "ray":
        raise ValueError("web=True shows sessions of mray; Ray has a dashboard of its own.")
    info = start(options).info()
    try:
        return _begun(info, options, port, web)
    except BaseException:  # the caller has no session then
        stop()
        raise


def _configure_logging(level: int | str | None, form: str | None, wanted: bool) -> None:
    from mray._api.log_handlers import configure  # noqa: PLC0415

    configure(level, form, wanted)


def _begun(info: Mapping[str, Any], options: SessionOptions, port: int | None, web: bool) -> RayContext:
    """Start the requested servers, log the session, and call the hooks."""
    if port is not None:
        _serve_metrics(port)
    if web:
        _serve_page()
    context = RayContext(info)
    if options.address in (None, "local"):
        logger.info("Started a local %s instance.", "Ray" if options.backend == "ray" else "mray")
    else:
        logger.info("Connected to %s at %s.", "Ray cluster" if options.backend == "ray" else "the mray session", context["address"])
    for hook in after_init:
        hook()
    return context


def _checked_port(port: Any) -> int | None:
    if port is not None and not (isinstance(port, int) and 0 <= port < 1 << 16):
        raise ValueError(f"_metrics_export_port must be a port, 0 to 65535 (0: any that is free), got {port!r}")
    return port


def _serve_metrics(port: int) -> None:
    """Serve until the session ends; the log reports a failure."""
    _serve(EXPORTER, "Exporter", f"No metrics are served at port {port}", port)


def _serve_page() -> None:
    """Serve until the session ends; the log reports a failure. It may be served already."""
    if PAGE not in _served and (page := _serve(PAGE, "LivePage", "There is no live page")) is not None:
        logger.info("Look at the session at %s", page.address)


def _serve(module: str, name: str, failure: str, *words: Any) -> Any:
    """A server that ends with the session; None, and a line in the log, if it cannot start."""
    try:
        server = getattr(importlib.import_module(module), name)(*words)
    except Exception as error:  # a port in use, no thread available, a guard of tests
        logger.error("%s: %s", failure, error)
        return None
    _served[module] = server

    def end() -> None:
        _served.pop(module, None)
        server.close()

    current.ends_with_session.append(end)
    return server


current.start_by_default = init

_PRIVATE = frozenset(
    {
        "configure_logging",
        "logging_format",
        "job_config",
        "object_spilling_directory",
        "_memory",
        "_metrics_export_port",
        "_temp_dir",
        "_node_name",
        "_node_ip_address",
        "_system_config",
        "_skip_env_hook",
    }
)


def _from_hook(runtime_env: dict[str, Any] | None) -> dict[str, Any] | None:
    """The environment as the program's hook has changed it. Raises ValueError for a missing hook."""
    path = settings.RUNTIME_ENV_HOOK.get()
    if not path:
        return runtime_env
    module, _, name = path.rpartition(".")
    try:
        hook = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"{settings.RUNTIME_ENV_HOOK.name}={path!r} must be the dotted name of a function in a module: {error}") from error
    changed: dict[str, Any] | None = hook(runtime_env)
    return changed


def warn_deprecated(instead: str) -> None:
    """A DeprecationWarning at the caller's caller."""
    warnings.warn(
        f"This API is deprecated and may be removed in future Ray releases. Use {instead} instead", DeprecationWarning, stacklevel=3
    )
