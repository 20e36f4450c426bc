"""Objects: values as bytes, where the bytes lie, and who keeps them.

    value --serializer--> pickle + buffers --inline--> message                      (up to 100 KiB)
                                           --store---> shared-memory segment -----> mapped by readers, read-only
                                                       (a file, when memory is full)

`serializer` turns values into bytes and back, `store` keeps the segments of what this process has produced, `ownership` says how long an
object is needed, `remote_error` carries exceptions. For `mray._runtime` and `mray._graph`; nothing here waits or talks to another process.

Rejected: a store process of its own (Ray's plasma). Each put would cost two messages to it, and its death would take every object with
it; with segments made by their producer, a put of a small value costs 2 µs and of a large one a copy.
"""
