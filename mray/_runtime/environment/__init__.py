"""Runtime environments: what a job, a task or an actor wants of the process that runs it.

`environments` checks one and applies it in a worker; `folders` takes code along, `packages` names the interpreter that has its packages
and `package_builder` makes it; `profilers` wraps a worker in one.
"""
