"""Definitions that every layer shares: ids, settings, options, messages, the logger.

====================  ====================================================================================================

option                a keyword of `init`, `remote` or `options`, with its type, range and default

process-local         a value that exists once per process, also where processes are simulated
point                 a named step of a protocol at which tests may delay a process (`named_points`, `mray.testing.points`)
====================  ====================================================================================================

Pure, except for `bridge`, which calls into event loops: nothing else here opens, starts or waits for anything, and nothing here imports
another part of mray except its exceptions.
"""
