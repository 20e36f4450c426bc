"""The process that grants leases, places actors and handles every death: one thread, one reactor.

`node` receives messages, gives events to the scheduler (`mray._decide.scheduler`) and carries out its instructions.

====================  ====================================================================================================
member                a process that has joined the session: it has a connection and a row in the session's table
job                   a driver, and all work that it has started
introduction          the node creates a socket pair and sends its two ends to two processes
stray worker          one that has hung up without exiting, or whose exit status does not explain its exit
unmet wait            a request for resources that has waited for long
session reset         the end of all work of a session's own driver, which then joins the same session again
====================  ====================================================================================================
"""
