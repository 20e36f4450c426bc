"""Compiled graphs and the results of their executions.

====================  ==================================================================================================
CompiledDAG           A compiled graph, under Ray's name.
CompiledDAGFuture     The awaitable result of an execution.
CompiledDAGRef        The result of an execution.
all_of                Return an awaitable for the results of all actors that compute one output.
each_of               Return an awaitable for each of several results.
receive_into          Copy the result of an execution into an array.
====================  ==================================================================================================
"""

from mray._graph.caller.compiled import CompiledDAG
from mray._graph.caller.future import CompiledDAGFuture, all_of, each_of
from mray._graph.caller.receive import receive_into
from mray._graph.caller.ref import CompiledDAGRef

__all__ = ["CompiledDAG", "CompiledDAGFuture", "CompiledDAGRef", "all_of", "each_of", "receive_into"]
