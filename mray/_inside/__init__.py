"""The kernel's interface: the names that packages outside it may use, apart from `mray._api` and `mray._common`.

One module for each subject, loaded by name. A module's docstring is its table: each name with one sentence. `tests/house/test_inside.py`
compares the tables with the modules, their uses and the recorded signatures.

====================  ====================================================================================================
addresses             Addresses of this machine.
bars                  Progress bars of many processes, drawn by the driver.
client                The runtime of this process, for its answers to observers.
debugging             Workers that wait at a breakpoint.
drivers               Starting, joining and leaving a session as its driver.
graphs                Compiled graphs and the results of their executions.
machine               The memory of this machine.
memory                Shared memory between processes, its fences and doorbells.
messages              Messages to the node and to processes over separate sockets.
plans                 Plans of compiled graphs.
platform              The seams of the runtime of a process, for engines that hand in their own.
processes             Processes of this machine.
sessions              The sessions of this user on this machine, as their directories show.
spans                 Spans of time, and traces of them.
startup               The processes that a session of this process starts from.
topology              The CPUs and GPUs of this machine and their distances.
transports            The contracts of channels, communicators and groups, and the parts to build one from.
values                Values and how they travel.
====================  ====================================================================================================

Rejected: one flat module. Each package would load the whole kernel for a few names.
"""
