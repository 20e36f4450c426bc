"""The names of ``ray.experimental.util``: see `types`."""
