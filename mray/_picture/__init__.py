"""Pictures of the DAG nodes that a user bound, of a compiled graph and of a timeline of a session; a schedule as a trace.

A layer above `_graph`, in the process that draws. `mray` registers it (`mray._api.artist`), and it is not imported before the first
picture is drawn. `graph_artist` draws graphs, `plot` is Ray's older picture of DAG nodes, `timeline_page` draws spans.

    figures                                     texts
    Plan --plan_figure--+                       +--dot_form----> graphviz: PNG, SVG, PDF, ...
                        +--> Figure ------------+--mermaid
    DAGNode --dag_figure+     (boxes, edges,    +--characters (grid)
                              owners, colours)  +--svg, where ``dot`` is not installed
    Plan --schedule_trace--> mray._trace.chrome: JSON for Perfetto
    spans --timeline_page--> page: HTML, over time

A `Figure` has no coordinates and no format, and no form uses a plan. All is pure but `files`, which writes, and `graphviz`, which runs
the program ``dot``.

====================  ======================================================================
figure                boxes and edges of a graph, with their texts and colours
form                  a text made of a figure: DOT, Mermaid, characters, plain SVG
page                  lanes with slices over time, as HTML: of a session's spans
layers                boxes below all that they depend on, for characters and plain SVG
owner                 the actor or worker that runs a call; its boxes have one colour
measures              the statistics of a graph as far as pictures show them
outline               a DAG node's description of itself (`mray._api.dag_outline`)
====================  ======================================================================

Rejected: an own layout with few crossings and straight lines. It was as long as the rest of this room, and ``dot`` has a better one.
"""
