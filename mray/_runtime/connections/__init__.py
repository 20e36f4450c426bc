"""One process's connections to the node and to its peers: joining, messages, requests, and how each connection ends.

`endpoint` joins a session and reads all messages, over the connections of a `transport`, natively `sockets`; `dispatch` maps each message
to its handler; `requests` are numbered and answered. A process has parts (`part`), which enter their handlers when they are made and are
told in turn how connections end. When a process ends `ends` tells the parts that keep something for it, once, and `deaths` makes the errors
for everything that waited for it: which process died, and how. A peer whose calls are waited for one by one, many in a row, is offered a
ring pair (`mray._ipc.ring_pair`).

====================  ====================================================================================================
endpoint              one process's end of all its connections
part                  an object that does one of a process's tasks, and keeps the state of that task
resident              what lives in a process: a driver's hold on its session, or a worker
peer                  another driver or worker of the session, reached over one connection each way at most
handler               the function that a message is given to, in the thread that reads, with the client's lock held
request, answer       a numbered message to the node or a peer, and the message that settles it
hang-up               the end of a connection: with an error the peer's process lives, without one the node's word follows
end of a process      its death or departure as the node has told it, with its cause, also where no connection was (`Ended`)
cause                 a recorded reason of a death: kind, text, pid, exit status (`mray._common.causes`)
====================  ====================================================================================================
"""
