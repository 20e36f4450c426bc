"""The sessions of this user on this machine, as their directories show.

====================  ==================================================================================================
ADDRESS               The name of the file that names the persistent session.
EndedSession          A session that has ended, by the logs and records that it has left.
SESSION_VARIABLE      The environment variable that names the session of a process.
address_lock          Hold the lock of the file that names the persistent session.
address_of            Return the address of a session: host and port, or its directory.
can_be_seen           Whether the processes of a session can be seen from here.
clean_after_node      End every process of a session whose node is dead, and remove its names.
directory_at          Return the directory of the session at a host and port.
is_alive              Whether a process of the session in a directory lives.
is_of_this_namespace  Whether the pids of a session are pids here.
is_private            Whether no other user may enter a directory.
kill_processes        End every process of a session whose node is dead.
local_process         Return the process of a session in one process.
parent_folder         Return the folder of this user's sessions below a temporary directory.
parents_elsewhere     Return the folders of sessions below temporary directories of their own.
private_directory     Make a directory that no other user may enter, or check it.
session_parents       Return the folders that may have sessions of this user.
sessions              Return the directories of the living sessions of this user, the oldest first.
while_locked          Hold the lock of a file or directory.
withdraw              Remove the file with the address if it names this session.
====================  ==================================================================================================
"""

from mray._ipc.ended_session import EndedSession
from mray._ipc.reaper import (
    ADDRESS,
    SESSION_VARIABLE,
    address_lock,
    can_be_seen,
    clean_after_node,
    is_of_this_namespace,
    kill_processes,
    local_process,
    while_locked,
    withdraw,
)
from mray._ipc.sessions import (
    address_of,
    directory_at,
    is_alive,
    is_private,
    parents_elsewhere,
    private_directory,
    session_parents,
    sessions,
)
from mray._ipc.sessions import parent_of as parent_folder

__all__ = [
    "ADDRESS",
    "SESSION_VARIABLE",
    "EndedSession",
    "address_lock",
    "address_of",
    "can_be_seen",
    "clean_after_node",
    "directory_at",
    "is_alive",
    "is_of_this_namespace",
    "is_private",
    "kill_processes",
    "local_process",
    "parent_folder",
    "parents_elsewhere",
    "private_directory",
    "session_parents",
    "sessions",
    "while_locked",
    "withdraw",
]
