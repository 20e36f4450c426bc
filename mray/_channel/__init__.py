"""Channels: the transports of graph edges.

For `mray._graph`, which decides which value crosses which edge and lets this layer carry it:

    writer ---- base.ChannelWriter ----> mechanism ----> base.ChannelReader ---- reader 0
                                                    └──> base.ChannelReader ---- reader 1

A channel has one writing end and a reading end for each reader; nothing in it blocks and nothing is locked, so that any end may die
between any two instructions. `base` is the contract, `select` chooses the transport of an edge, and `mray._graph.channel_ends` opens
the ends that belong to it: from `shm` and `communicator_edge` here, and from `mray._gpu` where tensors stay on devices. One suite
(``tests/conformance/test_channel.py``) has a row for each mechanism.

====================  ====================================================================================================
writer, reader        the ends of a channel; each belongs to one process
transport             a mechanism of channels: shared memory, CUDA IPC, pinned memory, a communicator, NCCL
form                  how an array or a tensor lies in a message: header and bytes (`array_form`, `tensor_form`)
group, member, rank   processes that call collectives together, one of them, its number
board                 the memory of one member that all others of its group read: its step, its call, its payload
signature             the call of a member in a step, in a word, by which members that disagree are found
site                  the devices of one end of an edge, as far as `select` needs them
====================  ====================================================================================================

Collectives are beside channels, not on them: each member of a group has a board that all others read (`board`, `group`, `rendezvous`),
and `shared_memory_group` reduces straight out of the others' boards what `collective_ops` says. The same boards bring the members of a
group of NCCL together and tell them of deaths.

Rejected: one channel per pair of processes (a value for four readers would be serialized and copied four times); a count of readers
that have read, shared by them (a count that several processes write needs a lock, and who dies holding it blocks the others); acknowledging
each message (the reader's CONSUMED word says the same without a system call).
"""
