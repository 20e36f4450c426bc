"""What ``ray.experimental`` has: where objects are.

For users. Subpackages (channels, collectives) are imported by name.
"""

from __future__ import annotations

from mray.experimental.locations import get_local_object_locations, get_object_locations

__all__ = ["get_local_object_locations", "get_object_locations"]
