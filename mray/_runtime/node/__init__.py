"""The process that grants leases, places actors and hears of every death: one thread, one reactor.

`node` receives messages, asks the scheduler (`mray._scheduler`) and carries out what it decides. Around it: `members` (the connections of
the processes that have joined), `introducer` (who reaches whom), `jobs` (drivers of a persistent session), `key_values`, `memory_monitor`,
`unmet_waits` (what waits in vain is told), `graceful_kill`, `stray_workers` and `session_reset` (how workers end), `snapshot` (what
observers are told).
"""
