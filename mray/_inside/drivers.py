"""Starting, joining and leaving a session as its driver.

====================  ==================================================================================================
SessionHold           The hold of a driver on a session.
ended_error           Return the error of a session that this process has ended.
new_job               Prepare this process to join a session, and return the specification of its job.
new_node              Start the node of a persistent session.
node_error            Return the error of a lost node.
====================  ==================================================================================================
"""

from mray._runtime.connections.deaths import ended_error, node_error
from mray._runtime.session.launching import new_node
from mray._runtime.session.session import SessionHold, new_job

__all__ = ["SessionHold", "ended_error", "new_job", "new_node", "node_error"]
