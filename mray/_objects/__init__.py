"""Objects: values as bytes, the memory of the bytes, and their owners.

    value --serializer--> pickle + buffers --inline--> message                      (up to 100 KiB)
                                           --store---> shared-memory segment -----> mapped by readers, read-only
                                                       (a file, when memory is full)

Nothing here blocks or talks to another process.

====================  ====================================================================================================
form                  the encoding of a payload: pickled, packed, failed, in a segment, tensors
owner, borrower       the process that created the object; one that holds a ref to it
segment               shared memory that holds one large value; recycled by its producer
reading               a deserialized value, with the memory that its arrays are views of
====================  ====================================================================================================

Rejected: a separate store process (Ray's plasma). Each put would cost two messages, and its death would take every object with it.
"""
