"""The table of Ray's modules in a process that has Ray's libraries, which overrides the one of `names`.

Public modules that mray has stay mray's. Missing ones come from Ray's own files, and so do private pure Python modules; the rest of
Ray's core, which is compiled or talks to its daemons, is mray's.
"""

from __future__ import annotations

from collections.abc import Mapping

from mray._libraries.names import CLIENT, GRAPH_INSIDE, MODULES, NIXL, STATE_INSIDE, TRANSPORT_INSIDE, Lack, Stand, _from

#: modules of Ray's core that are mray's
CORE: Mapping[str, Stand] = {
    "ray.dashboard.modules.dashboard_sdk": Stand(also=_from("mray._libraries.core.serve_client", "parse_runtime_env_args"), private=True),
    "ray.dashboard.modules.serve.sdk": Stand(also=_from("mray._libraries.core.serve_client", "ServeSubmissionClient"), private=True),
    "ray.util.client.common": Stand(also=_from("mray._libraries.core.client", "ClientObjectRef"), private=True),
    "ray.util.rpdb": Stand("mray.util.rpdb", also=_from("mray._libraries.core.debugger", "_is_ray_debugger_post_mortem_enabled")),
}
#: modules that mray has less completely than Ray's libraries need
RAYS: frozenset[str] = frozenset(
    {
        "ray._common",
        "ray._private.async_compat",
        "ray._private.profiling",
        "ray.util.timer",
        "ray.util.tracing.tracing_helper",
        "ray._common.network_utils",
        "ray._common.test_utils",
        "ray._common.utils",
        "ray._private",
        "ray._private.auto_init_hook",
        "ray._private.client_mode_hook",
        "ray._private.test_utils",
        "ray._private.utils",
        "ray.data",
        "ray.util.annotations",
        "ray.util.debug",
    }
)
#: modules that are missing with Ray's libraries, too
_STAYS_AWAY = frozenset({CLIENT, GRAPH_INSIDE, NIXL, STATE_INSIDE, TRANSPORT_INSIDE})


def is_rays(name: str) -> bool:
    if name in CORE:
        return False
    if name in RAYS:
        return True
    at = name
    while at:
        found = MODULES.get(at)
        if isinstance(found, Lack):
            return found.reason not in _STAYS_AWAY
        if found is not None:
            return False
        at = at.rpartition(".")[0]
    return False
