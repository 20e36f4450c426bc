"""From DAG nodes to a graph that runs: the passes, in the process that compiles.

    DAG nodes --validate--> Graph --resolve--> + channels --schedule--> + operations --deadlock--> Plan --allocate--> channels, programs

Every pass but `allocate` is a function of frozen data (`mray._graph.plan`): nothing exists until everything is decided.
"""
