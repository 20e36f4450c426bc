"""Questions that Ray's command ``serve`` asks the dashboard's web server; the running session answers."""

from __future__ import annotations

import importlib
import json
from typing import Any
from urllib.parse import urlsplit

from mray import init, is_initialized, nodes
from mray._libraries.core.network_utils import is_localhost

__all__ = ["ServeSubmissionClient", "parse_runtime_env_args"]


class ServeSubmissionClient:
    """Joins the session that ``RAY_ADDRESS`` names, or the only one, as a driver.

    `dashboard_head_address` names the machine: ValueError unless it is this one. Raises ConnectionError when no session runs.
    """

    def __init__(self, dashboard_head_address: str, **_options: Any) -> None:
        parts = urlsplit(dashboard_head_address)
        if parts.scheme not in ("http", "https") or parts.hostname is None:
            raise ValueError(f"the address of a dashboard begins with http:// or https://, and {dashboard_head_address!r} does not")
        from ray.serve._private.constants import SERVE_NAMESPACE  # noqa: PLC0415  (of the installed Ray)

        if not is_initialized():
            init(address="auto", namespace=SERVE_NAMESPACE)
        own = {name for node in nodes() for name in (node["NodeManagerAddress"], node["NodeManagerHostname"])}
        if not is_localhost(parts.hostname) and parts.hostname not in own:
            raise ValueError(f"mray runs on this machine alone, and {dashboard_head_address!r} is another")

    def get_serve_details(self) -> dict[str, Any]:
        """Serve's state, as plain values."""
        from ray.serve.context import _get_global_client  # noqa: PLC0415
        from ray.serve.schema import ServeInstanceDetails  # noqa: PLC0415

        client = _get_global_client(raise_if_no_controller_running=False)
        if client is None:
            return dict(ServeInstanceDetails.get_empty_schema_dict())
        return dict(client.get_serve_details())

    def deploy_applications(self, config: dict[str, Any]) -> None:
        """Starts Serve if needed, and returns when it has begun."""
        from ray.serve._private.api import serve_start  # noqa: PLC0415
        from ray.serve.schema import ServeDeploySchema  # noqa: PLC0415

        wanted = ServeDeploySchema.model_validate(config)
        client = serve_start(
            http_options=wanted.http_options.model_dump(),
            grpc_options=wanted.grpc_options.model_dump(),
            global_logging_config=wanted.logging_config,
            controller_options=wanted.controller_options,
            proxy_location=wanted.proxy_location,
        )
        if wanted.logging_config:
            client.update_global_logging_config(wanted.logging_config)
        client.deploy_apps(wanted)

    def delete_applications(self) -> None:
        """End Serve with all its applications."""
        from ray import serve  # noqa: PLC0415

        serve.shutdown()


def parse_runtime_env_args(
    runtime_env: str | None = None, runtime_env_json: str | None = None, working_dir: str | None = None
) -> dict[str, Any]:
    """The environment that a command's options describe: a YAML file, or JSON, and the directory, which overrides theirs.

    Raises ValueError when both a file and JSON are given.
    """
    if runtime_env is not None and runtime_env_json is not None:
        raise ValueError("Only one of --runtime_env and --runtime-env-json can be provided.")
    environment: dict[str, Any] = {}
    if runtime_env is not None:
        yaml: Any = importlib.import_module("yaml")  # installed with Ray
        with open(runtime_env) as file:
            environment = yaml.safe_load(file) or {}
    elif runtime_env_json is not None:
        environment = json.loads(runtime_env_json)
    return environment if working_dir is None else {**environment, "working_dir": working_dir}
