"""The words that every layer shares: ids, settings, options, messages, the logger.

====================  ====================================================================================================
message               a flat tuple that begins with a code (`messages`); `protocol` is the table of all
schema                the types of a field of a message
option                a keyword of `init`, `remote` or `options`, with its type, range and default
setting               a variable of the environment; declared in `settings`, and nowhere else read
record                a tuple whose items have names (`record`); events, instructions and causes are
process-local         a value of which each process has one, also where processes are simulated
point                 a named step of a protocol where tests may delay a process (`named_points` is the door to `mray.testing.points`)
====================  ====================================================================================================

Pure, but for `bridge`, which hands over to event loops: nothing else here opens, starts or waits for anything, and nothing here imports
another part of mray but its exceptions.
"""
