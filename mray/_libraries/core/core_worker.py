"""``CoreWorker``: the compiled side of the calling process, as far as Ray's libraries use it."""

from __future__ import annotations

from collections.abc import Callable

from mray import ObjectRef
from mray._api.current import started_backend
from mray._observe.process_snapshot import own_section


class CoreWorker:
    def add_object_out_of_scope_callback(self, object_ref: ObjectRef, callback: Callable[[bytes], None]) -> bool:
        """Call back once no process holds a ref of it. Raises ValueError when another process owns it."""
        started_backend().on_out_of_scope(object_ref, callback)
        return True

    def get_disable_job_level_lineage_reconstruction(self) -> bool:
        return False

    def get_local_memory_store_bytes_used(self) -> int:
        """Bytes of small values of this process; 0 on an engine of one process. Walks every object of the interpreter."""
        return own_section(started_backend().info()["session_dir"], "inline bytes") or 0
