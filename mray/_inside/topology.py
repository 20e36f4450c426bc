"""The CPUs and GPUs of this machine and their distances.

====================  ==================================================================================================
affinity              The module of the distances of GPUs and the topology of a machine.
discovery             The module that finds the CPUs, memory and GPUs which this process may use.
====================  ==================================================================================================
"""

from mray._decide.scheduler import affinity
from mray._ipc import discovery

__all__ = ["affinity", "discovery"]
