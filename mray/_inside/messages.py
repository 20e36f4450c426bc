"""Messages to the node and to processes over separate sockets.

====================  ====================================================================================================
advice                Name the exhausted resource that an error means, and how to get more of it.
connect_to_node       Connect to the node of the session in a directory.
encode                Return the frame of a message.
first_message         Return the first message of some bytes and the bytes behind it.
is_exhausted          Whether an error means that this process has no descriptor left.
====================  ====================================================================================================
"""

from mray._ipc.connection import encode
from mray._ipc.frames import first_message
from mray._ipc.introductions import connect_to_node
from mray._ipc.limits import advice, is_exhausted

__all__ = ["advice", "connect_to_node", "encode", "first_message", "is_exhausted"]
