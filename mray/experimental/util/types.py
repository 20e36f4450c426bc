"""Ray's module for the devices of edges and the operations of collectives."""

from mray._api.collective_node import AllGatherOp, AllReduceOp, ReduceScatterOp
from mray._api.collective_node import CollectiveOp as _CollectiveOp
from mray._api.communicator import ReduceOp
from mray._api.type_hint import Device

__all__ = ["AllGatherOp", "AllReduceOp", "Device", "ReduceOp", "ReduceScatterOp", "_CollectiveOp"]
