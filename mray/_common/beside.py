"""The modules beside the kernel, by name: the kernel imports none of them, and loads each on first use."""

from __future__ import annotations

import importlib
from typing import Any

#: Parts that a process loads on first use (`mray._runtime.client.client.Client.late`): module and class.
GPUS = "mray._gpu.gpus:Gpus"
TENSORS = "mray._gpu.tensor_transport:TensorStore"
MPS = "mray._gpu.mps:SessionMps"
MPS_CONTROL = "mray._device.mps_control"
ARTIST = "mray._picture.graph_artist"
TOPOLOGY = "mray._device.topology"
JOINING = "mray._joining.persistent"
SNAPSHOT = "mray._observe.process_snapshot"
SESSION_TRACE = "mray._backends.session_trace"


def loaded(name: str) -> Any:
    module, _colon, kind = name.partition(":")
    found = importlib.import_module(module)
    return getattr(found, kind) if kind else found
