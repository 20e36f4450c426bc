"""Creating and finding interpreters."""

from __future__ import annotations

from typing import Any

from mray.proxy._interpreter import Interpreter
from mray.proxy._var import RemoteInterpreter, connect

#: Interpreters that call each other in turn use one call for each level.
MAX_CONCURRENCY = 256


class RemoteInterpreterFactory:
    """Creates and finds interpreters, on an engine: ``RemoteInterpreterFactory(mray)``, or Ray itself."""

    def __init__(self, ray: Any) -> None:
        self.ray = ray
        self._actor_class: Any = None

    def create(self, **options: Any) -> RemoteInterpreter:
        """Start an interpreter; does not wait for it. `options` are those of an actor: ``num_gpus=1``, ``name="model"``,
        ``lifetime="detached"``.

        ``max_concurrency`` (256) is the number of threads that may wait there concurrently. Raises ValueError for ``max_restarts``,
        since variables end with their process.
        """
        if options.get("max_restarts"):
            raise ValueError("max_restarts: an interpreter cannot be restarted, since its variables end with its process")
        if self._actor_class is None:
            self._actor_class = self.ray.remote(Interpreter)
        name = options.get("name")
        handle = self._actor_class.options(**{"max_concurrency": MAX_CONCURRENCY, **options}).remote(self.ray.__name__)
        return connect(self.ray.__name__, handle, name)

    def get(self, name: str, namespace: str | None = None) -> RemoteInterpreter:
        """The interpreter of this name. Raises ValueError if there is none."""
        return connect(self.ray.__name__, self.ray.get_actor(name, namespace), name)

    def __getitem__(self, name: str) -> RemoteInterpreter:
        return self.get(name)

    def get_or_create(self, name: str, **options: Any) -> RemoteInterpreter:
        """The interpreter of this name; a new one if there is none."""
        return self.create(name=name, get_if_exists=True, **options)

    def destroy(self, name: str, namespace: str | None = None) -> None:
        """End the interpreter of this name and all that it holds. Raises ValueError if there is none."""
        self.get(name, namespace).destroy()
