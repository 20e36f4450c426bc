"""The types of edges and the communicators of graphs: Ray's names.

For users. An edge of a graph is described with `TorchTensorType`, and the compiler chooses the channel that carries it. Ray's channels,
which are parts of its own compiled graphs, are not in mray.
"""

from __future__ import annotations

from mray._api.communicator import Communicator
from mray.experimental.channel.cpu_communicator import CPUCommunicator

__all__ = ["CPUCommunicator", "Communicator"]
