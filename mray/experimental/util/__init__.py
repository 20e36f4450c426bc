"""What ``ray.experimental.util`` has: the types of edges and collectives, in `types`."""
