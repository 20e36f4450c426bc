"""Mechanisms between processes: shared memory, doorbells, rings, connections, and the kernel's view of processes.

    layout, ring, slots     rings of slots in a segment: how graphs pass values
    ring_loans              what readers of a ring hold beside its slots, until they release it or exit
    mapped                  received values, mapped copy-on-write: whose memory a value lies in, and how to pass it on
    reactor                 the event loop in which a process waits (contract: waiting_place)
    ring_pair               two rings beside a busy connection: messages without system calls while both ends are awake
    introductions           connections that the node opens between two processes
    interrupts, handlers    Ctrl-C, and exceptions of the user's signal handlers, deferred to a safe moment
    reaper                  cleaning up after dead processes
    faults, limits          error texts: exceptions in handlers; too few descriptors

Nothing here knows tasks, actors or objects. Law: every word in shared memory has one writer, and a doorbell is only a hint to poll, so a
process may die between any two instructions.

====================  ====================================================================================================
word                  eight aligned bytes in shared memory, with one writer
reader                the thread that currently polls and dispatches; other threads sleep until it wakes them
background reader     the thread that reads while no other thread of a busy process waits
doorbell              an eventfd, or a semaphore, and a word that says whether its process sleeps; rung after publishing
relay                 the thread that waits for a process's semaphore and rings its own eventfd
nudge                 an empty message over the socket: a message in the ring arrived as its reader fell asleep
loan                  another's memory that is passed on, until its readers release it
====================  ====================================================================================================
"""
