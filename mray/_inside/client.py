"""The runtime of this process, for its answers to observers.

====================  ==================================================================================================
Client                The runtime of a process: its lock, its parts and the sections that observers may ask for.
Connection            A connection of the client to the node or to a peer.
own_clients           Return the clients of this process.
reading_frame         Find the frame of a thread in which it reads messages.
====================  ==================================================================================================
"""

from mray._ipc.connection import Connection
from mray._ipc.reactor import reading_frame
from mray._runtime.client.client import Client, own_clients

__all__ = ["Client", "Connection", "own_clients", "reading_frame"]
