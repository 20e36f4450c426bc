"""The modules beside the kernel, by name: the kernel imports none of them, and loads each on first use.

Any process. A session on CPUs loads none of them.
"""

from __future__ import annotations

import importlib
from typing import Any

#: Parts that a process loads on first use (`mray._runtime.client.client.Client.late`): module and class.
GPUS = "mray._gpu.gpus:Gpus"
TENSORS = "mray._gpu.tensor_transport:TensorStore"
#: MPS daemons, for the node (a class), and their control program.
MPS = "mray._gpu.mps:SessionMps"
MPS_CONTROL = "mray._device.mps_control"
#: Draws graphs.
ARTIST = "mray._picture.graph_artist"
#: The topology of CPUs and GPUs.
TOPOLOGY = "mray._device.topology"
#: Sessions that drivers join.
JOINING = "mray._joining.persistent"
#: A process's answers to observers, and the trace of a session.
SNAPSHOT = "mray._observe.process_snapshot"
SESSION_TRACE = "mray._backends.session_trace"


def loaded(name: str) -> Any:
    """The module of that name, or its class."""
    module, _colon, kind = name.partition(":")
    found = importlib.import_module(module)
    return getattr(found, kind) if kind else found
