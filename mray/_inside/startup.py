"""The processes that a session of this process starts from.

====================  ==================================================================================================
line_coverage         The module that measures the lines of workers.
template              The module of the processes that nodes are forked from.
====================  ==================================================================================================
"""

from mray._runtime.processes import line_coverage, template

__all__ = ["line_coverage", "template"]
