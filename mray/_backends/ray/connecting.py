"""From mray's `init` to Ray's: addresses, options, and errors."""

from __future__ import annotations

import logging
import os
import warnings
from typing import TYPE_CHECKING, Any

import ray

from mray._backends.ray.runtime_info import node_here
from mray._common import settings
from mray._common.log import logger

if TYPE_CHECKING:
    from mray._common.options import SessionOptions

_NO_CLIENT = "Ray's client, which mray cannot use: run the program on a machine of the cluster, with the address ray:auto or ray:HOST:PORT."


def ray_address(address: str) -> str:
    """``local``, ``auto``, or the address of a cluster that this machine belongs to. ValueError for others, such as ``ray://host:port``."""
    if address.startswith("ray://"):
        raise ValueError(f"{address!r} is an address for {_NO_CLIENT}")
    rest = address.removeprefix("ray:")
    if not rest:
        raise ValueError(f"the address {address!r} is not valid: expected ray:local, ray:auto or ray:HOST:PORT")
    return rest


def connect(options: SessionOptions) -> None:
    """Connect this process to Ray; ``ray:local`` starts a cluster for it, which Ray ends with it.

    Does nothing if the process is connected already.
    """
    if ray.is_initialized():
        if ray.util.client.ray.is_connected():
            raise RuntimeError(f"This process has connected to Ray through {_NO_CLIENT}")
        return
    address = ray_address(options.address or "ray:auto")
    given = _init_options(options, address == "local")
    with warnings.catch_warnings():
        # Ray's warnings about its own future.
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        ray.init(address=address, **given)


def _init_options(options: SessionOptions, starts: bool) -> dict[str, Any]:
    if not starts and options.conflict is not None:
        raise ValueError(options.conflict)
    given: dict[str, Any] = {
        "namespace": options.namespace,
        "runtime_env": options.runtime_env,
        "_skip_env_hook": True,  # `mray.init` has called it
        "log_to_driver": options.log_to_driver,
        "logging_level": logger.level or logging.INFO,
    }
    if options.logging_config is not None:
        given["logging_config"] = ray.LoggingConfig(**options.logging_config)
    if starts:
        given["include_dashboard"] = False
        for name in ("num_cpus", "num_gpus", "resources", "labels", "object_store_memory"):
            value = getattr(options, name)
            given[name] = dict(value) if isinstance(value, dict) else value
        temp_dir = options.temp_dir
        if temp_dir is not None and temp_dir == settings.TMPDIR.get():
            # As Ray does with RAY_TMPDIR: it opens its folder to every user, and mray's sessions may lie beside it.
            temp_dir = os.path.join(temp_dir, "ray")
        private = {
            "_memory": options.memory,
            "_temp_dir": temp_dir,
            "_node_name": options.node_name,
            "_node_ip_address": options.node_ip_address,
            "_system_config": options.system_config,
            "object_spilling_directory": options.object_spilling_directory,
        }
        given.update({name: value for name, value in private.items() if value is not None})
    if options.preload:
        logger.debug("init: Ray imports modules when a worker needs them; preload=%s has no effect", list(options.preload))
    if options.mps != "off":
        logger.debug("init: mray starts MPS for sessions of its own; mps=%r has no effect", options.mps)
    return {name: value for name, value in given.items() if value is not None}


def info() -> dict[str, Any]:
    context = ray.get_runtime_context()
    node = node_here()
    return {
        "node_id": bytes.fromhex(context.get_node_id()),
        "job_id": bytes.fromhex(context.get_job_id()),
        "namespace": context.namespace,
        "address": context.gcs_address,
        "session_name": node.session_name,
        "session_dir": node.get_session_dir_path(),
        "node_ip_address": node.node_ip_address,
        "pid": os.getpid(),
        "labels": {name: text for name, text in context.get_node_labels().items() if name != "ray.io/node-id"},
    }
