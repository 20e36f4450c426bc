"""Backends of `mray.util.collective`: the contract and the implementations."""
