"""An actor's part in graphs: programs, which its main thread runs between ordinary calls.

    compiler: Assignment ---> GraphService ---> open_ends, compile_program ---> Program
                                   |
    main loop of the worker -------+--> run: actions READ, COMPUTE, WRITE, until none can go on; then ordinary calls
    reading thread ----------------+--> state, probes: answered immediately, also while a method runs

A program never waits: an action that would block returns 0, and the program keeps its position. So one thread serves several graphs and
ordinary calls, and methods always run on the actor's main thread.

    assignment     an actor's orders: its part of the plan, and the locations of its channels and constants
    program        one graph's part of an actor, compiled to a flat list of actions
    action         a closure that does one operation and returns by how many positions the program advances: 0 when it would block
    cell           holds a value of the current execution between two operations
    inlet          one channel of a step that reads several; it owes the messages of executions that have failed without them
    overlap        communication that has begun and is waited for by the step that uses its value
    probe          a wrapper around reads, writes and methods, added and removed between two executions (`mray._graph.watch`)

Rejected: see `mray._graph`: an endless task per actor, and a thread per graph.
"""
