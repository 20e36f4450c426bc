"""Plans of compiled graphs.

====================  ==================================================================================================
DrawnEdge             An edge of a plan, for pictures.
DrawnNode             A DAG node of a plan, for pictures.
call_numbers          Return the number of the DAG node of each step.
drawing_of            Return the DAG nodes and edges of a plan.
plan                  The module of the records of a plan: steps, routes, operations and their kinds.
select                The module that names the transports of edges and chooses between them.
====================  ==================================================================================================
"""

from mray._channel import select
from mray._graph import plan
from mray._graph.drawing import DrawnEdge, DrawnNode, drawing_of
from mray._graph.structure import call_numbers

__all__ = ["DrawnEdge", "DrawnNode", "call_numbers", "drawing_of", "plan", "select"]
