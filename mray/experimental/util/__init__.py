"""The names of ``ray.experimental.util``: the types of edges and collectives, in `types`."""
