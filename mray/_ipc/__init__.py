"""Mechanisms between processes: shared memory, doorbells, rings, connections, and the kernel's view of processes.

    segment, table          named shared memory; the session's table of one-writer words
    mapped                  what others wrote, mapped copy-on-write: whose memory a value lies in, and how to pass it on
    layout, ring, slots     rings of slots in a segment: how graphs pass values
    ring_loans              what readers of a ring hold beside its slots, until they say otherwise or are dead
    connection, reactor     framed messages over unix sockets; the one place where a process waits
    ring_pair               two rings beside a connection that talks often: messages without the kernel while both ends are awake
    listener, introductions acceptors of connections; connections that the node makes for two processes
    frames                  the checks of a frame before it is read, as long as its sender is not known
    doorbell, semaphore     wake-ups of a process that sleeps: by eventfds, by POSIX semaphores
    spin                    the looks before it does
    event_loop              an asyncio loop that waits in the reactor
    interrupts, handlers    Ctrl-C, and exceptions of the user's signal handlers, put off to a safe moment
    memory_order            the fences that make all of it safe on processors that reorder
    process, pidfd, reaper  titles, parents, ends; cleaning after the dead
    discovery, sessions     CPUs, memory and GPUs for a session; the sessions of this user on this machine
    output                  workers' output as named lines
    faults, limits          texts of errors: exceptions of handlers; no descriptor left (`closed_descriptors`: closed by the program)

Nothing here knows tasks, actors or objects. Law: every word in shared memory has one writer, and a doorbell is a hint to look again, so a
process may die between any two instructions.

====================  ====================================================================================================
word                  eight aligned bytes in shared memory, with one writer
reader                the thread that polls and dispatches at the moment; the others sleep until it wakes them
background reader     the thread that reads while no other thread of a busy process waits
doorbell              an eventfd, or a semaphore, and a word that says whether its process sleeps; rung after publishing
relay                 the thread of a process that waits for a semaphore, and rings the own eventfd
ring pair             a page that two connected processes share, with a ring for each direction; offered after many calls waited for
nudge                 a message without meaning through the socket: what lies in the ring came as its reader fell asleep
wake-up descriptor    an eventfd as its own process sees it (`wakeup_fd`), which its reactor watches
poller                a callback that is called after each iteration of the reactor
acceptor              takes in connections at a listening socket, or from the node
spinner               decides whether a wait spins before it sleeps, by its recent success
slot, loan            memory of one large message, given to readers until they release it; memory of others that is passed on
stretch               code of the main thread that no interrupt may cut
====================  ====================================================================================================
"""
