"""Mechanisms between processes: shared memory, doorbells, rings, connections, and the kernel's view of processes.

    segment, table          named shared memory; the session's table of single-writer words
    mapped                  received values, mapped copy-on-write: whose memory a value lies in, and how to pass it on
    layout, ring, slots     rings of slots in a segment: how graphs pass values
    ring_loans              what readers of a ring hold beside its slots, until they release it or exit
    connection, reactor     framed messages over unix sockets; the event loop in which a process waits (contract: waiting_place)
    ring_pair               two rings beside a busy connection: messages without system calls while both ends are awake
    listener, introductions acceptors of connections; connections that the node opens between two processes
    frames                  checks of a frame from an unknown sender before it is decoded
    doorbell, semaphore     wake-ups of a sleeping process: by eventfds, by POSIX semaphores
    spin                    polling before a process sleeps
    event_loop              an asyncio loop that waits in the reactor
    interrupts, handlers    Ctrl-C, and exceptions of the user's signal handlers, deferred to a safe moment
    memory_order            the fences that make all of it correct on processors that reorder
    process, pidfd, reaper  titles, parents, exits; cleaning up after dead processes
    discovery, sessions     CPUs, memory and GPUs for a session; this user's sessions on this machine
    output                  workers' output as named lines
    faults, limits          error texts: exceptions in handlers; too few descriptors (`closed_descriptors`: closed by the program)

Nothing here knows tasks, actors or objects. Law: every word in shared memory has one writer, and a doorbell is only a hint to poll, so a
process may die between any two instructions.

====================  ====================================================================================================
word                  eight aligned bytes in shared memory, with one writer
reader                the thread that currently polls and dispatches; other threads sleep until it wakes them
background reader     the thread that reads while no other thread of a busy process waits
doorbell              an eventfd, or a semaphore, and a word that says whether its process sleeps; rung after publishing
relay                 the thread that waits for a process's semaphore and rings its own eventfd
ring pair             a page shared by two connected processes, with a ring per direction; offered after many blocking calls
nudge                 an empty message over the socket: a message in the ring arrived as its reader fell asleep
wake-up descriptor    the eventfd of the own process (`wakeup_fd`), which its reactor watches
acceptor              accepts connections at a listening socket, or from the node
spinner               decides whether a wait spins before it sleeps, by its recent success
slot, loan            memory of one large message, given to readers until they release it; another's memory that is passed on
stretch               code of the main thread that no interrupt may cut
====================  ====================================================================================================
"""
