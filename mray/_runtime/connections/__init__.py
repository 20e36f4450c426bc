"""A process's connections to the node and to its peers: joining, messages, requests, and how each connection ends.

`endpoint` joins a session and reads all messages, over the connections of a `transport`, natively `sockets`; `dispatch` maps each
message to its handler. When a process ends, `ends` notifies the parts that hold something for it, once, and `deaths` creates the errors
for all waiters.

====================  ====================================================================================================
part                  an object that does one of a process's tasks, and keeps the state of that task
resident              the host of a process: a driver's hold on its session, or a worker
peer                  another driver or worker of the session, reached over one connection each way at most
handler               the function for a message, called in the reading thread with the client's lock held
request, answer       a numbered message to the node or a peer, and the message that resolves it
hang-up               the end of a connection: with an error the peer's process lives, without one the node's report follows
end of a process      its death or departure as the node reports it, with its cause, also without a connection (`Ended`)
cause                 the recorded reason of a death: kind, text, pid, exit status (`mray._common.causes`)
====================  ====================================================================================================
"""
