"""Pictures of the DAG nodes that a user bound, of a compiled graph and of a timeline of a session; a schedule as a trace.

A layer above `_graph`, which `mray` registers (`mray._api.artist`), imported for the first picture.

    figures                                     texts
    Plan --plan_figure--+                       +--dot_form----> graphviz: PNG, SVG, PDF, ...
                        +--> Figure ------------+--mermaid
    DAGNode --dag_figure+     (boxes, edges,    +--characters (grid)
                              owners, colours)  +--svg, where ``dot`` is not installed
    Plan --schedule_trace--> mray._trace.chrome: JSON for Perfetto
    spans --timeline_page--> page: HTML, over time

All is pure but `files` and `graphviz`.

Rejected: an own layout with few crossings and straight lines. It was as long as the rest of this room, and ``dot`` has a better one.
"""
