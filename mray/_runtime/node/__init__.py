"""The process that grants leases, places actors and handles every death: one thread, one reactor.

`node` receives messages, gives events to the scheduler (`mray._decide.scheduler`) and carries out its instructions. Around it: `members`
(connections of joined processes) and other `records`, `timers` (events to report later), `introducer` (connections between processes),
`jobs` (drivers of a persistent session), `key_values`, `memory_monitor`, `unmet_waits` (warnings about resources that do not become free),
`graceful_kill`, `stray_workers` and `session_reset` (exits of workers), `mps_contract` (MPS, beside the kernel), `snapshot` (answers to
observers).

====================  ====================================================================================================
member                a process that has joined the session: it has a connection and a row in the session's table
job                   a driver, and all work that it has started
introduction          the node creates a socket pair and sends its two ends to two processes
stray worker          one that has hung up without exiting, or whose exit status does not explain its exit
unmet wait            a request for resources that has waited for long
session reset         the end of all work of a session's own driver, which then joins the same session again
====================  ====================================================================================================
"""
