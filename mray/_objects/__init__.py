"""Objects: values as bytes, the memory of the bytes, and their owners.

    value --serializer--> pickle + buffers --inline--> message                      (up to 100 KiB)
                                           --store---> shared-memory segment -----> mapped by readers, read-only
                                                       (a file, when memory is full)

`serializer` turns values into bytes and back, `store` keeps the segments of what this process has produced, `ownership` says how long an
object is needed, `remote_error` carries exceptions. `tensors` and `tables` know the memory of torch and Arrow. For `mray._runtime` and
`mray._graph`; nothing here waits or talks to another process.

====================  ====================================================================================================
entry                 the state of one object in a process that knows it: form, payload, counts
form                  how a payload is to be read: pickled, packed, failed, in a segment, tensors
owner, borrower       the process that made the object; one that holds a ref to it
segment               shared memory that holds one large value; recycled by its producer
reading               a value as it was made once, with the memory that its arrays are views of
====================  ====================================================================================================

Rejected: a store process of its own (Ray's plasma). Each put would cost two messages to it, and its death would take every object with
it; with segments made by their producer, a put of a small value costs 2 µs and of a large one a copy.
"""
