"""Observing a graph while it runs: reports of each actor's position, counters, profiles, and other profilers.

    caller                                                 actor
    report ------------ REPORT, to its reading thread ---> the position of its program, read from its main thread's stack
    statistics -------- STATISTICS ----------------------> counters of its writers
    Profile: start ---- PROFILE_NOW ---------------------> a probe around its program from the next execution on
             stop ----- UNPROFILE -----------------------> its spans

An unobserved graph pays nothing: a report reads the stack, and a probe is compiled into the list of actions.

Rejected: a second loop for profiled programs (not the program to be measured).
"""
