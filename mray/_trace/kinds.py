"""The kinds of spans."""

# Of a graph's loop:
READ_WAIT = "read wait"  # waiting for a message at a READ
DESERIALIZE = "deserialize"  # taking the message and deserializing its value
COMPUTE = "compute"  # the method
WRITE_WAIT = "write wait"  # no room in the channel
SERIALIZE = "serialize"  # serializing a value and publishing the message
TRANSFER = "transfer"  # the same through a communicator, which moves the tensors meanwhile
RECEIVE = "receive"  # as DESERIALIZE, through a communicator
DEVICE = "device"  # work of a device's stream
# Of calls, in this order, by Ray's names where it has one:
SUBMIT = "submit_task"  # in the caller: pickling the arguments, sending or queueing
QUEUE = "queue"  # in the worker: from submission until it begins
CALL = "task"  # all of it in the worker, around the next three
ARGUMENTS = "task:deserialize_arguments"
EXECUTE = "task:execute"
REPLY = "task:store_outputs"
GET = "get"  # in the caller: waiting for values and deserializing them

#: Kinds in which nothing is done.
WAITS = frozenset({READ_WAIT, WRITE_WAIT, QUEUE})
