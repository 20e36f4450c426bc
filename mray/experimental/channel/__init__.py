"""The types of edges and the communicators of graphs: Ray's names.

An edge of a graph is described with `TorchTensorType`. Ray's channel classes, which are internals of its compiled graphs, do not exist
in mray.
"""

from __future__ import annotations

from mray._api.communicator import Communicator
from mray.experimental.channel.cpu_communicator import CPUCommunicator

__all__ = ["CPUCommunicator", "Communicator"]
