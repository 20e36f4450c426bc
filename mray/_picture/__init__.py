"""Pictures: of the DAG nodes that a user bound, of a compiled graph, of its schedule, and of a timeline of a session.

A layer above `_graph`, in the process that draws. `mray` registers it (`mray._api.artist`), and none of it is imported before the first
picture is drawn. `artist` draws graphs and schedules, `plot` is Ray's older picture of DAG nodes, `timeline` draws spans.

    figures                                     forms
    Plan --plan_figure--+                       +--svg (layout)----> page: HTML
                        +--> Figure ------------+--dot_form--------> graphviz: PNG, PDF, ...
    DAGNode --dag_figure+     (boxes, edges,    +--mermaid
                               owners, colours) +--characters (grid)
    Plan --timing--> Chart: the schedule --bands---chart_svg, chart_forms
    spans --timeline--> PNG (matplotlib)

A `Figure` has no coordinates and no format, and no form has a plan. All is pure but `files`, which writes, `graphviz`, which runs the
program ``dot``, and `timeline`.

====================  ======================================================================
figure                boxes and edges of a graph, with their texts and colours
chart                 bars on the lanes of actors, over time
form                  a text made of a figure or chart: SVG, HTML, Mermaid, DOT, characters
band                  a part of a chart's time, below the earlier part; "row" in pictures
layout                places of boxes and routes of edges; `grid` for characters
owner                 the actor or worker that runs a call; its boxes have one colour
measures              the statistics of a graph as far as pictures show them
outline               a DAG node's description of itself (`mray._api.dag_outline`)
====================  ======================================================================

Rejected: having ``dot`` make SVG where it is installed. Every form that carries interaction or measurements would have to be made twice.
"""
