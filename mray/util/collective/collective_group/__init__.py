"""Backends of `mray.util.collective`."""
