"""The contracts of channels, communicators and groups, and the parts to build one from.

====================  ====================================================================================================
ChannelReader         One reading end of a channel.
ChannelWriter         The writing end of a channel.
Failed                An error that is sent along an edge instead of a value.
GroupHost             A process of a session as a group uses it: its id, waits and doorbell.
GroupMember           One attempt of a process to be a rank of a group.
MemberOfGroup         A member of a group that calls collectives through shared memory.
NOTHING               The answer of a reader without a message.
RankCommunicator      A communicator for actors: sent to each member and initialized there.
ReaderBy              A reader that reads by a given function.
ReaderEnd             The arguments of a `ShmReader`.
ShmReader             The reading end of a ring in shared memory.
ShmWriter             The writing end of a ring in shared memory.
WrappedReader         A reader around another one.
WrappedWriter         A writer around another one.
WriterEnd             The arguments of a `ShmWriter`.
board                 The module of the memory that a member of a group publishes: its fields and their values.
communicator_edge     The module of edges whose tensors go through a communicator.
join                  Join a group of processes that call collectives together.
library_of            The name of the array library that an object belongs to.
====================  ====================================================================================================
"""

from mray._channel import board, communicator_edge
from mray._channel.base import NOTHING, ChannelReader, ChannelWriter, Failed, ReaderBy, WrappedReader, WrappedWriter
from mray._channel.collective_ops import library_of
from mray._channel.group_host import GroupHost
from mray._channel.membership import join
from mray._channel.rank_communicator import RankCommunicator
from mray._channel.rendezvous import GroupMember
from mray._channel.shared_memory_group import MemberOfGroup
from mray._channel.shm import ReaderEnd, ShmReader, ShmWriter, WriterEnd

__all__ = [
    "NOTHING",
    "ChannelReader",
    "ChannelWriter",
    "Failed",
    "GroupHost",
    "GroupMember",
    "MemberOfGroup",
    "RankCommunicator",
    "ReaderBy",
    "ReaderEnd",
    "ShmReader",
    "ShmWriter",
    "WrappedReader",
    "WrappedWriter",
    "WriterEnd",
    "board",
    "communicator_edge",
    "join",
    "library_of",
]
