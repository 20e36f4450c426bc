"""Addresses of this machine.

====================  ==================================================================================================
LOOPBACK              The address of this machine for itself.
join_host             Return a host and a port as one text.
node_address          Return the address of this machine.
====================  ==================================================================================================
"""

from mray._ipc.discovery import LOOPBACK, node_address
from mray._ipc.sessions import join_host

__all__ = ["LOOPBACK", "join_host", "node_address"]
