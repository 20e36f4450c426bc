"""The CPUs and GPUs of this machine and their distances.

====================  ==================================================================================================
affinity              The module of the distances of GPUs and the topology of a machine.
====================  ==================================================================================================
"""

from mray._decide.scheduler import affinity

__all__ = ["affinity"]
