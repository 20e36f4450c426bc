"""Pictures of graphs: of the DAG nodes that a user wrote, of a compiled graph, and of the order in which its actors do things.

In the process that draws; pure, but for `files`, which writes them and runs the program ``dot``. Behind `mray._graph.render`.

    Plan --plan_figure--+                       +--svg (layout)----> page: HTML
                        +--> Figure ------------+--dot_form--------> dot: PNG, PDF, ...
    DAGNode --dag_figure+     (boxes, edges,    +--mermaid
                               who has which    +--characters (grid)
                               colour)
    Plan --timing--> Chart: the schedule ----------chart_svg, chart_forms

A `Figure` knows no coordinates and no format, a form knows no plan. SVG, HTML, Mermaid, DOT and characters are made here and need nothing
else; what only ``dot`` can make is asked of it.

Rejected: having ``dot`` make SVG where it is installed. The picture in a notebook would change from machine to machine, and every form
that carries interaction or measurements would have to be made twice.
"""
