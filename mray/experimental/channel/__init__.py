"""Channels, communicators and the types of edges: Ray's names.

For users. Edges of graphs are described with `TorchTensorType` and carried by what the compiler chooses; the channels here are for
programs that move values between actors without a graph.

====================  ====================================================================================================
channel               one writer, and so many readers as were declared; a handle of it may be pickled and passed on
creator               the process that made a channel; its one writer, unless it has passed that on
cached channel        a channel whose values several methods of one actor read
composite channel     one channel for readers in several processes, made of one for each kind of way
accelerator context   the devices of this process, and the communicator that moves tensors between them
====================  ====================================================================================================
"""

from __future__ import annotations

from mray._api.communicator import Communicator
from mray.experimental.channel.cached_channel import CachedChannel
from mray.experimental.channel.common import ChannelContext
from mray.experimental.channel.cpu_communicator import CPUCommunicator
from mray.experimental.channel.intra_process_channel import IntraProcessChannel
from mray.experimental.channel.shared_memory_channel import BufferedSharedMemoryChannel, Channel, CompositeChannel

__all__ = [
    "BufferedSharedMemoryChannel",
    "CPUCommunicator",
    "CachedChannel",
    "Channel",
    "ChannelContext",
    "Communicator",
    "CompositeChannel",
    "IntraProcessChannel",
]
