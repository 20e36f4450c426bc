"""The memory of this machine.

====================  ==================================================================================================
usage_here            Measure the memory of the machine, or of the control group of this process.
====================  ==================================================================================================
"""

from mray._runtime.node.memory_usage import usage_here

__all__ = ["usage_here"]
