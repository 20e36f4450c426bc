"""From mray's `init` to Ray's: addresses, options, and what is said when it cannot be.

In the driver.
"""

from __future__ import annotations

import logging
import os
import warnings
from typing import TYPE_CHECKING, Any

import ray

from mray._backends.ray.runtime_facts import node_here
from mray._common import settings
from mray._common.log import logger

if TYPE_CHECKING:
    from mray._common.options import SessionOptions


def ray_address(address: str) -> str:
    """The address for Ray's `init`: ``ray:local`` and ``ray:auto`` without the prefix, ``ray://host:port`` as it is (Ray's client),
    ``ray:host:port`` the address of a cluster that this machine belongs to.
    """
    if address.startswith("ray://"):
        return address
    rest = address.removeprefix("ray:")
    if not rest:
        raise ValueError(f"the address {address!r} names nothing: ray:local, ray:auto, ray:HOST:PORT or ray://HOST:PORT")
    return rest


def connect(options: SessionOptions) -> None:
    """Connect this process to Ray; ``ray:local`` starts a cluster for it, which Ray ends with it.

    A process that is connected already (a worker of Ray, a driver that calls Ray too) stays as it is.
    """
    if ray.is_initialized():
        return
    address = ray_address(options.address or "ray:auto")
    given = _init_options(options, address == "local", address.startswith("ray://"))
    with warnings.catch_warnings():
        # Warnings of Ray about its own future are not for users of mray.
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        ray.init(address=address, **given)


def _init_options(options: SessionOptions, starts: bool, client: bool) -> dict[str, Any]:
    if not starts and options.conflict is not None:
        raise ValueError(options.conflict)
    given: dict[str, Any] = {"namespace": options.namespace, "runtime_env": options.runtime_env}
    if not client:
        given["_skip_env_hook"] = True  # `mray.init` has asked the hook, if it was to be asked
        given["log_to_driver"] = options.log_to_driver
        given["logging_level"] = logger.level or logging.INFO
        if options.logging_config is not None:
            given["logging_config"] = ray.LoggingConfig(**options.logging_config)
    if starts:
        given["include_dashboard"] = False
        for name in ("num_cpus", "num_gpus", "resources", "labels", "object_store_memory"):
            value = getattr(options, name)
            given[name] = dict(value) if isinstance(value, dict) else value
        temp_dir = options.temp_dir
        if temp_dir is not None and temp_dir == settings.TMPDIR.get():
            # As Ray does with RAY_TMPDIR: it opens its own folder to every user, and mray's sessions may lie beside it.
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
        logger.debug("init: Ray imports modules when a worker needs them; preload=%s changes nothing", list(options.preload))
    if options.mps != "off":
        logger.debug("init: mray starts MPS for sessions of its own; mps=%r changes nothing", options.mps)
    return {name: value for name, value in given.items() if value is not None}


def facts() -> dict[str, Any]:
    """See `mray._api.backend.Backend.facts`."""
    context = ray.get_runtime_context()
    node = node_here()
    found: dict[str, Any] = {
        "node_id": bytes.fromhex(context.get_node_id()),
        "job_id": bytes.fromhex(context.get_job_id()),
        "namespace": context.namespace,
        "address": context.gcs_address,
        "session_name": None,
        "session_dir": None,
        "node_ip_address": None,
        "pid": os.getpid(),
    }
    if node is not None:
        found["session_dir"] = node.get_session_dir_path()
        found["session_name"] = node.session_name
        found["node_ip_address"] = node.node_ip_address
    else:
        try:
            found["session_name"] = context.get_session_name()
            found["session_dir"] = os.path.join(context.get_temp_dir(), found["session_name"])
            found["node_ip_address"] = ray.util.get_node_ip_address()
        except Exception:  # Ray's client knows none of these
            logger.debug("facts of the cluster that Ray does not tell", exc_info=True)
    try:
        labels = context.get_node_labels()
    except Exception:
        labels = {}
    found["labels"] = {name: text for name, text in labels.items() if name != "ray.io/node-id"}
    return found
