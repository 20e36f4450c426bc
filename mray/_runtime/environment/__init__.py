"""Runtime environments: variables, code, packages and profilers that a job, a task or an actor asks for in its workers.

====================  ====================================================================================================
reduced environment   one of builtin values with absolute paths, as it travels between processes
taken over            of a file: unpacked or copied into the session's directory immediately, since its owner may delete it
interpreter           the Python that a worker runs: the session's, a program that the user names, or one with packages
recipe                all that the packages of a virtual environment follow from; its hash names the folder
builder               the process that installs packages into a virtual environment of the user's cache
wrapper               the command line of a profiler, in front of a worker's
====================  ====================================================================================================
"""
