"""The kinds of spans."""

# Of a graph's loop:
READ_WAIT = "read wait"  # the program had come to a READ, and no message was there
DESERIALIZE = "deserialize"  # taking the message and making its value
COMPUTE = "compute"  # the method
WRITE_WAIT = "write wait"  # no room in the channel
SERIALIZE = "serialize"  # making the message of a value and publishing it
TRANSFER = "transfer"  # the same through a communicator, which moves the tensors meanwhile
RECEIVE = "receive"  # as DESERIALIZE, of what a communicator brings
DEVICE = "device"  # what a stream of a device does
# Of calls, in this order, by Ray's names where it has one:
SUBMIT = "submit_task"  # in the caller: pickling the arguments, sending or queueing
QUEUE = "queue"  # in the worker: from having been submitted until it begins
CALL = "task"  # all of it in the worker, around the next three
ARGUMENTS = "task:deserialize_arguments"
EXECUTE = "task:execute"
REPLY = "task:store_outputs"
GET = "get"  # in the caller: waiting for values and deserializing them

#: Those in which nothing is done.
WAITS = frozenset({READ_WAIT, WRITE_WAIT, QUEUE})
