"""Mechanisms between processes: shared memory, doorbells, rings, connections, and the kernel's view of processes.

    segment, table          named shared memory; the session's table of one-writer words
    mapped                  what others wrote, mapped copy-on-write: whose memory a value lies in, and how to pass it on
    layout, ring, slots     rings of slots in a segment: how graphs pass values
    connection, reactor     framed messages over unix sockets; the one place where a process waits
    frames                  what is asked of a frame before it is read, as long as nobody knows who has sent it
    doorbell, spin          how a sleeper is woken, and when not to sleep
    memory_order            what makes all of it safe on processors that reorder
    process, reaper         titles, parents, ends; cleaning after the dead

Nothing here knows tasks, actors or objects. Law: every word in shared memory has one writer, and a bell is a hint to look again, so a
process may die between any two instructions.
"""
