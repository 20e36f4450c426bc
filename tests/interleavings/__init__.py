"""The protocols of shared memory, run in every order of their steps: the real code over stand-ins for what is shared (`explorer`).

Each protocol of `mray._ipc` and `mray._channel` (by the name of its SYNC POINT) and what explores it. "Crash": of either side, after any
step. Mutants: edits of the real code, each of which some scenario must find.

    message, entry      a ring's entries, one to three readers                                test_rings, crash, x86-64, weak; mutants
    room                a full ring: the writer waits for one to three readers                test_rings, crash, x86-64, weak; mutants
    bell                PARKED: a ringer and a sleeper; one bell for all readers of a ring    test_rings, crash, x86-64, weak; mutants
    bell, semaphores    the same by semaphores, each with the thread that waits for it        test_rings, crash, x86-64; mutants
    bell, spinning      processes that spin for any time before they sleep (`mray._ipc.spin`)  test_rings, crash, x86-64; mutants
    bell, threads       DOZING, a thread that begins to wait, an event loop's poller          test_threads; mutants
    slot                slots used again, given away, held, that grow; one to three readers   test_slots, crash, x86-64, weak; mutants
    slot, loans         values passed on: the passer's ring closes, anybody dies              test_passing_on, crash, x86-64, weak; mutants
    lease               what is lent beside a ring, also to devices; one or two readers       test_leases, crash, x86-64, weak; mutants
    timeline            how far streams have come, who looks in another process or thread     test_marking, crash, x86-64, weak; mutants
    place, join         a ring that one or two readers join, and anybody closes               test_joining, crash, x86-64, weak; mutants
    block, half, need   the steps of collectives, two members (three: MRAY_TEST_FULL=1)       test_groups, crash, x86-64, weak; mutants
    partner             two members find each other, meet, part, and once more                test_finding, crash, x86-64, weak; mutants
    queued              work on streams: who leaves, or dies, before all is done              test_queueing, crash, x86-64, weak; mutants
    left                a member leaves while others wait                                     test_groups, x86-64, weak; mutants
    refused             a member is refused what others wait in, and may call it again        test_groups, x86-64, weak; mutants

Explored in the weak order: one writer and one reader, or two members (two readers with MRAY_TEST_FULL=1, which also has two members
that find each other, work on streams, and all that takes longer than some seconds).

Not explored, only argued where they stand: the background reader's ticks, which only take the reading lock when nobody has it.

The order of x86-64 has every sequential order among its own, and whoever may die need not: what is explored with one of the two is not
explored without it as well, but with MRAY_TEST_FULL=1, where a fault is told in fewer steps.

Bounds: at most so many messages, members and joins as the shapes of the tests say; with three readers, and where a full ring or a growing
slot is waited for by two, the first message is there from the beginning. Two loads at a time wait for their answers in the weak order.
Threads of one process in sequential order (Python's lock orders them). Changes of files and names are seen by all at once. A library that
queues work on streams takes locks, which are fences. No bound on preemptions: a step that no other actor can notice is taken at once, all
others in every order.
"""
