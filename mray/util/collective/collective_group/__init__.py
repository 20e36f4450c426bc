"""Backends of `mray.util.collective`: the contract, and the one over shared memory."""
