"""The words that processes of a session say to each other.

A message is a flat tuple of builtin values whose first item is one of the codes below. It crosses a
connection as ``marshal`` (which builds no objects of the user and runs no code): user values travel
inside as ``bytes`` that only the addressee unpickles, in the thread that wants the value.

Every code is declared once, with the fields that follow it. ``process`` is a process id of ours
(16 hex digits), ``pid`` the kernel's.

Value triples
-------------
A value in a message is three consecutive fields ``form, payload, refs``:

* ``PICKLED``: payload is a pickle.
* ``PACKED``:  payload is a pickle with its out-of-band buffers behind it (`mray._objects.serializer`).
* ``SEGMENT``: payload is ``(segment name, length, producer process)``; the value lies in shared memory, PACKED (or PICKLED: length is
negative).
* ``FAILED``:  payload is the pickle of the exception that `get` raises.
* ``TENSORS``: the tensors have stayed in the process that made them; payload is what is described in
`mray._gpu.tensor_transport`.

``refs`` is ``None`` or the list of ``(object id, owner process)`` that are pickled inside the value;
an actor handle inside a value stands there as ``(actor id, "")``.
"""

from __future__ import annotations

# ------------------------------------------------------------------------------------- value forms
PICKLED = 0
PACKED = 1
SEGMENT = 2
FAILED = 3
TENSORS = 4

# --------------------------------------------------------------------------- first on any connection
HELLO = 1  # role, process, pid    role: one of the ROLE_ words; both ends send it first
#            a driver that joins a session which is not its own adds its job: a dict, see `mray._runtime.node.jobs`
ROLE_DRIVER = "driver"
ROLE_WORKER = "worker"
ROLE_NODE = "node"
ROLE_ZYGOTE = "zygote"
ROLE_OBSERVER = "observer"  # looks on: asks the node for what `mray._runtime.node.snapshot` tells, and belongs to nothing
DESCRIPTOR = 2  # key                 instead of HELLO: send me this descriptor, then hang up; key: see `mray._runtime.client.descriptors`
REFUSED = 3  # errno, text              to whoever has just connected: you are not let in, for want of a descriptor say; the hang-up follows
PROTOCOL_ERROR = 4  # text                last: a message of yours was invalid, and why
PASS_ON = 5  # process                  to the node, instead of HELLO: give this connection to that process; answered by PASSED or REFUSED
PASSED = 6  # -                        from now on that process hears what is said here
FAULT = 7  # text                   last: what you have said made sense, and I have failed at it; the exception, in words
OFFER_RING = 8  # name, row              a page with rings for this connection, from the process of that row (`mray._ipc.ring_pair`)
TAKE_RING = 9  # taken, row             ... which the other process has mapped, or not
RETIRE_RING = 39  # -                  this end writes into the ring pair no more, and the other is to do the same
NUDGE = 38  # -                        look into your ring

# ------------------------------------------------------------------------------- peer to peer: calls
FUNCTION = 10  # function id, pickle                     precedes the first call that uses it, once per connection
FUNCTION_OVER = 29  # function id                         no call that uses it comes over this connection, unless FUNCTION comes again
CALL = 11  # task id, method name, num_returns, form, payload, refs, arguments, options
#            a method of the actor that lives at the other end
#            `arguments`: None or a list of (form, payload) in the order of the placeholders among the arguments
#            `options`: None or a dict of what is rarely set ("retry", "group", "trace", ...)
TASK = 12  # task id, function id, num_returns, form, payload, refs, arguments, options, name
REPLY = 13  # task id, form, payload, refs                a call or task with one return value
REPLIES = 14  # task id, list of (form, payload, refs)     one with several (or none)
LEASED = 15  # lease id, resources, gpu ids, num_cpus       what the tasks that follow may use
RECLAIM = 16  # most                                     give back at most so many tasks that have not started
GIVEN_BACK = 17  # list of task ids                         tasks that will not run here: push them elsewhere
CANCEL = 18  # task id, force, recursive
ATTEMPT = 19  # task id                                   an application error that the caller asked to be retried
LEAVING = 24  # -                                         this worker ends after the task that it runs: keep the lease, push no more
CANCEL_OBJECT = 23  # object id, force, recursive            a borrower asks the owner to cancel the call that makes it

# --------------------------------------------------------------------- peer to peer: streams of a generator
STREAM_ITEMS = 20  # task id, first, list of (form, payload, refs)   items that were yielded, from number `first` (0, 1, ...); REPLY ends it
#             none, where the producer has begun and waits for some of these to be taken
STREAM_TAKEN = 21  # task id, count                         so many have been taken; said where the producer is to wait for it
STREAM_STOP = 22  # task id                                 nobody reads it any more

# ------------------------------------------------------- peer to peer: tensors that stay with their maker
TENSORS_FETCH = 25  # number, object id, through host       send me the tensors
TENSORS_BROUGHT = 26  # number, form, payload, lease       form: PICKLED, PACKED, SEGMENT or FAILED
#                   lease: id of an object that is lent, b"", or a list of numbers of device memory that is;
#                   then the payload is the list of what is said of each tensor (`mray._device.exports`)
TENSORS_FREE = 27  # object ids                            nobody needs them any more
TENSORS_DONE = 28  # number, note, point                   device memory that was lent may be used again after that point (no note: now)

# ---------------------------------------------------------------------------- peer to peer: ownership
BORROW = 30  # number, object ids                     I hold these refs; answer BORROWED when number > 0
BORROWED = 31  # number
RELEASE = 32  # object ids                            I hold them no more
FETCH = 33  # object id [, asks]                        send me OBJECT once it is ready; ABSENT too, if it is not and I ask
OBJECT = 34  # object id, form, payload, refs
FREE_SEGMENT = 35  # names [, reuse]                   segments you produced that nobody needs any more; False: nor is to use again
ABSENT = 37  # object id                                what you have fetched is not there yet
UNPIN = 36  # task id                                   the refs inside that reply are borrowed: drop your pins

# --------------------------------------------------------------------------------- graphs (peer to peer)
GRAPH = 40  # number, verb, payload                     verb: "allocate" | "stop" | "report" | "execute" | "received"; answered by GRAPHED
GRAPHED = 41  # number, ok, payload                      payload: a pickle, of the exception when not ok

# -------------------------------------------------------------------------------- of observers to a peer
ASK = 45  # number, sections                           also first on a connection, instead of HELLO
TOLD = 46  # number, answer                              section -> (ok, rows or a text), see `mray._observe.process_snapshot`

# ----------------------------------------------------------------------------------- client to the node
LEASE_REQUEST = 50  # request, demand                       demand: a dict, see `mray._decide.scheduler.records`
LEASE_CANCEL = 51  # request                               no more needed; a grant that crosses it is returned
LEASE_RETURN = 52  # lease id
LEASE_BREAK = 63  # lease id, text                        ... whose worker is to end: the conversation with it has broken, and why
BLOCKED = 53  # -                                        this worker's task waits: its CPUs are free; or the worker ends, and waits
UNBLOCKED = 54  # -
ACTOR_CREATE = 55  # request, actor id, spec                  spec: a dict, see `mray._decide.scheduler.records`
ACTOR_SUBSCRIBE = 56  # actor id                              answered by ACTOR_STATE now and at each change
ACTOR_HOLD = 57  # number, actor ids                        this process holds handles of these; answered by HELD if number > 0
ACTOR_DROP = 58  # actor ids                               ... and no more
ACTOR_KILL = 59  # request, actor id, no_restart             answered by ANSWER, once the signal is sent, if request > 0
NAME_LOOKUP = 60  # request, name, namespace               answered by ANSWER with the actor's public spec
QUERY = 61  # request, what, arguments                    what: "cluster_resources", "available_resources", "nodes", "actors", ...
#             from an observer: "snapshot", "stacks", "last calls"
FENCE = 68  # request                               answered by ANSWER, behind all that the node has sent before
MAKE_ROOM = 49  # request                           ask all others for the memory that they keep for reuse; answered by ANSWER
SHUTDOWN = 62  # -                                        a driver: end all of its work, and with a session of its own the session
RESET = 64  # -                                           a driver to its own session: end my work, hang up, and await me anew
SPILLED = 69  # -                                        an object was written to disk: the session's table says how much is there
GROUP_CREATE = 65  # request, placement group id, spec        spec: `mray._decide.scheduler.placement`; answered by ANSWER at once
GROUP_AWAIT = 66  # request, placement group id               answered once it is created, is removed, or can never be created
GROUP_REMOVE = 67  # request, placement group id

# ----------------------------------------------------------------------------------- worker to the node
ACTOR_READY = 70  # actor id                              its constructor returned
ACTOR_FAILED = 71  # actor id, pickle of the exception    its constructor raised
EXITING = 72  # cause kind, text[, name, calls]            this worker ends on purpose (see CAUSE_ words); its last calls, for the timeline
KILL_ME = 74  # -                                        end the work of this worker on its GPUs, then kill it
SETTING_UP = 73  # what                                    code of the user's begins to run before it serves, a hook; "": it is over

# ----------------------------------------------------------------------------------- node to a client
WELCOME = 80  # facts: dict                                facts of the session; with the descriptors of its table and of channels
LEASE_GRANT = 81  # request, lease id, worker process, resources, gpu ids, and if it is pinned the CPUs, and other accelerators
LEASE_REFUSED = 82  # request, text                        this machine can never satisfy it
LEASE_RECALL = 84  # lease id                               others wait: return it as soon as it is idle
ACTOR_STATE = 85  # actor id, state, process, incarnation, cause
#                   state: one of the following; cause: None or
#                   (kind, text, pid, signal or exit status or None, payload or None)
#                   payload: the pickled exception of CAUSE_INIT; the last lines of a worker that crashed, UTF-8
ACTOR_STATES = PENDING, ALIVE, RESTARTING, DEAD = "pending", "alive", "restarting", "dead"
HELD = 86  # number
ANSWER = 87  # request, ok, value                         value: builtin values; a text when not ok
OUTPUT = 88  # pid, stream, name, text                    what a worker printed (driver only); stream: 1, 2 or NOTE_STREAM
NOTE_STREAM = 3  # the text is a JSON object about a progress bar or a breakpoint (see `mray._ipc.output`)
TRIM_NOW = 89  # -
ACTOR_START = 90  # actor id, spec, incarnation               to a worker: become this actor
EXIT = 91  # cause kind, text                                to a worker: finish what is queued and end
WORKER_GONE = 92  # process, role, cause [, made]       a process of the session died: its borrows and objects go; cause as in ACTOR_STATE
#                   role: what it was, in words, if it was no worker; made: segments that it has made for the addressee
SAVE = 93  # -                                              to a worker whose lines are counted: write them, and die at once
LEFT = 98  # -                                              to a driver of several that said SHUTDOWN: nothing of its work runs any more
ENDING = 99  # text                                          to drivers: the session ends, and why

# ----------------------------------------------------------------------------- node and zygote
SPAWN = 100  # worker process, environment                   fork a worker
SPAWNED = 101  # worker process, pid
REAPED = 102  # pid, wait status
NOT_SPAWNED = 103  # worker process, text      the zygote could not fork it, now: it says why
PRELOAD_FAILED = 104  # module, text          workers start without this preloaded module, and why

# ------------------------------------- client and node, on a channel of their own (`mray._ipc.introductions`)
INTRODUCE = 105  # number, process, connect        is there such a process ("": the node); and I want a connection to it
INTRODUCED = 106  # number, pid                      it is there; the connection comes with this as a descriptor
NOT_INTRODUCED = 107  # number, errno, text           why not

# ----------------------------------------------------------------------------- causes of a death
CAUSE_CRASH = "crash"  # a signal or exit status that nobody asked for
CAUSE_KILL = "kill"  # ray.kill
CAUSE_EXIT = "exit"  # exit_actor(), or max_calls reached
CAUSE_SCOPE = "scope"  # the last handle went away, or __ray_terminate__
CAUSE_OWNER = "owner"  # the process that created it died
CAUSE_INIT = "init"  # the constructor raised
CAUSE_MEMORY = "memory"  # the node ended it because memory ran low; the text says how low
CAUSE_NODE = "node"  # the node died, or the session ended
CAUSE_GROUP = "group"  # its placement group was removed
CAUSE_REFUSED = "refused"  # could never be placed on this machine, or given a process

#: Stands in the text of a refusal when the processes of an environment die as they start.
NO_PROCESS = "no worker process could be started"
#: Begins the text of a refusal when the placement group that was named is not there any more.
GROUP_REMOVED = "placement group was removed"
