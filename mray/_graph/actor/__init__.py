"""An actor's part in graphs: programs, which its main thread runs between ordinary calls.

    compiler: Assignment ---> GraphService ---> open_ends, compile_program ---> Program
                                   |
    main loop of the worker -------+--> run: actions READ, COMPUTE, WRITE
    reading thread ----------------+--> state, probes: answered immediately, also while a method runs

A program never waits: an action that would block returns 0, and the program keeps its position. So methods of all graphs and ordinary
calls share the actor's main thread.

    action         a closure that does one operation and returns by how many positions the program advances: 0 when it would block
    cell           holds a value of the current execution between two operations
    inlet          one channel of a step that reads several; it owes the messages of executions that have failed without them
    overlap        communication that has begun and is waited for by the step that uses its value
"""
