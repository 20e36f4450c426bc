"""`ActorHandle`: identifies an actor.

A handle holds a token of the backend; a weak handle (`get_actor`, ``current_actor``) holds none and keeps nothing alive.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic

from mray._api.blueprint import ActorBlueprint
from mray._api.dag_outline import ActorOutline
from mray._api.type_variables import T_co
from mray._common.ids import ActorID

#: Options that callers need; builtin values only.
_CALLERS_OPTIONS = (
    "_actor_generator_backpressure_num_objects",
    "max_task_retries",
    "max_pending_calls",
    "name",
    "namespace",
    "enable_tensor_transport",
    "max_concurrency",
    "allow_out_of_order_execution",
    "num_gpus",
)


class ActorHandle(Generic[T_co]):  # covariant: handles of a list may be of different classes
    """A reference to an actor: ``handle.method.remote(...)``. Equal to every other handle of the same actor; hashable; picklable.

    For backends: `_id` (bytes), `_token` (theirs; None for a weak handle), `_blueprint`, `_carried`. Attributes that mray reads have
    special names, since all others are methods of the actor.
    """

    __slots__ = ("__dict__", "__weakref__", "_backend", "_carried", "_id", "_options", "_token")

    #: Set by the subclass of each actor class.
    _blueprint: ActorBlueprint

    def __init__(self, actor_id: bytes, token: Any, options: Mapping[str, Any], backend: object | None, carried: Any) -> None:
        self._id = actor_id
        self._token = token
        self._options = {name: options[name] for name in _CALLERS_OPTIONS if name in options}
        self._backend = None if backend is None else weakref.ref(backend)
        #: The engine's data; travels with the handle.
        self._carried = carried

    __class_getitem__: Any = classmethod(types.GenericAlias)

    @property
    def _actor_id(self) -> ActorID:
        return ActorID(self._id)

    _ray_actor_id = _actor_id

    @property
    def _is_weak(self) -> bool:
        return self._token is None

    _ray_weak_ref = _is_weak

    @property
    def _ray_original_handle(self) -> bool:
        """Whether it is the one that the actor was started with."""
        return not self._is_weak and "_came" not in vars(self)

    if TYPE_CHECKING:  # the methods of the actor; see `mray._api.actor`

        def __getattr__(self, name: str) -> Any: ...

    def __dir__(self) -> list[str]:
        return ["__init__", *self._blueprint.methods]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ActorHandle) and self._id == other._id

    def __hash__(self) -> int:
        return hash(self._id)

    def __repr__(self) -> str:
        return f"Actor({self._blueprint.name}, {self._id.hex()})"

    def __actor_outline__(self) -> ActorOutline:
        return ActorOutline(self._id.hex(), self._blueprint.class_name, True)

    @property
    def __actor_options__(self) -> dict[str, Any]:
        """The given options that callers need to know."""
        return self._options

    def __actor_info__(self) -> tuple[Any, ...]:
        """Id, blueprint's uuid and wire form, options, whether it is weak, and the engine's data."""
        info = (self._id, self._blueprint.uuid, self._blueprint.wire(), self._options, self._token is None)
        return info if self._carried is None else (*info, self._carried)

    def __was_made_with__(self, backends: Collection[object]) -> bool:
        """Whether one of these was the backend of this process when the handle was created, or none was."""
        return self._backend is None or ((backend := self._backend()) is not None and backend in backends)

    def __copy__(self) -> ActorHandle[T_co]:
        return self

    def __deepcopy__(self, _memo: Any) -> ActorHandle[T_co]:
        return self


def ids_of(actors: Iterable[ActorHandle]) -> list[bytes]:
    """The ids of actors, in their order."""
    return [actor._id for actor in actors]
