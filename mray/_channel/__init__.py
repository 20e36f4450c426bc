"""Channels: the transports of graph edges, and the groups of collectives.

    writer ---- base.ChannelWriter ----> mechanism ----> base.ChannelReader ---- reader 0
                                                    └──> base.ChannelReader ---- reader 1

Nothing in a channel blocks or is locked, so any end may die between any two instructions. `mray._graph.channel_ends` opens the ends:
from `shm` and `communicator_edge`, and from `mray._gpu` where tensors stay on devices.

====================  ====================================================================================================
form                  how an array or a tensor lies in a message: header and bytes
group, member, rank   processes that call collectives together, one of them, its number
board                 the memory of one member that all others of its group read: its step, its call, its payload
signature             the call of a member in a step, packed into 64 bits; members compare them to detect different calls
site                  the devices of one end of an edge
====================  ====================================================================================================

Collectives use boards, not channels; boards also bring the members of an NCCL group together and report deaths.

Rejected: one channel per pair of processes (a value for four readers would be serialized and copied four times); a shared count of
readers that have read (it needs a lock, and a process that dies holding it blocks the others); acknowledging each message (the reader's
CONSUMED says the same without a system call).
"""
