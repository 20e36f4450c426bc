"""A plugin for mypy: handles know the methods of their actors without `mray.method`, and calls take refs as keyword arguments.

Enabled by ``plugins = ["mray.mypy_plugin"]``. The other annotations are in ``mray/_api/typed.pyi``. A class that `remote` decorates
stays a class for mypy, with the attributes of an `ActorClass`; an attribute of a handle is looked up in the class of its actor; the
parameters of ``remote`` and ``bind`` accept refs, or nodes of a graph, as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from mypy.nodes import MDEF, FuncBase, SymbolTableNode, TypeInfo, Var
from mypy.plugin import AnalyzeTypeContext, AttributeContext, ClassDefContext, FunctionContext, MethodSigContext, Plugin
from mypy.typeops import bind_self, function_type
from mypy.types import AnyType, CallableType, FunctionLike, Instance, ProperType, Type, TypeOfAny, UnionType, get_proper_type

_API = "mray._api"
_REMOTE, _CLASS, _HANDLE = f"{_API}.decorator.remote", f"{_API}.actor.ActorClass", f"{_API}.actor_handle.ActorHandle"
_REF, _NODE = f"{_API}.object_ref.ObjectRef", f"{_API}.dag_node.DAGNode"
_METHOD = f"{_API}.typed.RemoteMethod"
_HANDLES = (f"{_HANDLE}.", f"{_API}.typed.ActorHandle.")
_CALLEES = {f"{_API}.typed.{name}" for name in ("Callee", "RemoteFunction", "SeveralFunction", "RemoteMethod", "SeveralMethod")}
_COROUTINES = {"typing.Coroutine", "typing.Awaitable"}
#: Key of the metadata of a class that `remote` decorates.
_MARK = "mray"
_OF_ACTOR_CLASSES = ("remote", "options", "bind")


def plugin(_version: str) -> type[Plugin]:
    """The entry for mypy."""
    return RemotePlugin


class RemotePlugin(Plugin):
    """Answers mypy's queries, by full name."""

    def get_class_decorator_hook_2(self, fullname: str) -> Callable[[ClassDefContext], bool] | None:
        return _mark if fullname == _REMOTE else None

    def get_class_attribute_hook(self, fullname: str) -> Callable[[AttributeContext], Type] | None:
        owner, _, name = fullname.rpartition(".")
        return self._of_actor_class if name in _OF_ACTOR_CLASSES and self._is_marked(owner) else None

    def get_function_hook(self, fullname: str) -> Callable[[FunctionContext], Type] | None:
        return _refuse if self._is_marked(fullname) else None

    def get_attribute_hook(self, fullname: str) -> Callable[[AttributeContext], Type] | None:
        return self._of_handle if fullname.startswith(_HANDLES) else None

    def get_method_signature_hook(self, fullname: str) -> Callable[[MethodSigContext], FunctionLike] | None:
        owner, _, name = fullname.rpartition(".")
        if owner == _CLASS and name == "remote":
            return self._of_constructor
        if fullname == f"{_API}.typed.Call.__call__":
            return self._of_call
        return self._of_bind if owner in _CALLEES and name == "bind" else None

    def get_type_analyze_hook(self, fullname: str) -> Callable[[AnalyzeTypeContext], Type] | None:
        return _proxy if fullname == f"{_API}.typed.ActorProxy" else None

    # ------------------------------------------------------------------------------------ classes
    def _is_marked(self, fullname: str) -> bool:
        found = self.lookup_fully_qualified(fullname)
        return found is not None and isinstance(found.node, TypeInfo) and _MARK in found.node.metadata

    def _instance(self, fullname: str, *args: Type) -> Instance:
        found = self.lookup_fully_qualified(fullname)
        assert found is not None, fullname
        assert isinstance(found.node, TypeInfo), fullname
        return Instance(found.node, args)

    def _of_actor_class(self, context: AttributeContext) -> Type:
        """An attribute of a decorated class: that of the `ActorClass` which it is at runtime."""
        made = _made_by(context.type)
        member = getattr(context.context, "name", None)
        if made is None or member is None:
            return context.default_attr_type
        found = _member(context, member, self._instance(_CLASS, made))
        return self._constructor(made, found) if member == "remote" and isinstance(found, CallableType) else found

    def _of_constructor(self, context: MethodSigContext) -> FunctionLike:
        made = _argument(context.type)
        return self._constructor(made, context.default_signature) if isinstance(made, Instance) else context.default_signature

    def _constructor(self, made: Instance, found: CallableType) -> CallableType:
        """`found`, the signature of `ActorClass.remote`, with the parameters of the constructor."""
        node = made.type.get_method("__init__")
        kind = get_proper_type(function_type(node, found.fallback)) if isinstance(node, FuncBase) and not made.args else None
        return self._taking(_REF, bind_self(kind, made), found.ret_type, found) if isinstance(kind, CallableType) else found

    # ------------------------------------------------------------------------------------ handles
    def _of_handle(self, context: AttributeContext) -> Type:
        """An attribute of a handle: the method of that name."""
        actor, member = _argument(context.type), getattr(context.context, "name", None)
        if isinstance(context.type, Instance) and context.type.type.get(member or "") is not None:
            return context.default_attr_type  # the handle's own
        if not isinstance(actor, Instance) or member is None or actor.type.fullname == "builtins.object":  # of several classes
            return AnyType(TypeOfAny.special_form)
        method = _member(context, member, actor)
        if not isinstance(method, CallableType):
            if not isinstance(method, AnyType):
                context.api.fail(f"A handle has methods only, and {member!r} is none", context.context)
            return AnyType(TypeOfAny.from_error)
        result = get_proper_type(method.ret_type)
        if isinstance(result, Instance) and result.type.fullname in _COROUTINES:
            method = method.copy_modified(ret_type=result.args[-1])
        node = actor.type.get(member)
        declared = get_proper_type(node.type) if node is not None else None
        several = isinstance(declared, Instance) and declared.type.fullname == f"{_API}.typed.DecoratedSeveral"
        return self._instance(f"{_API}.typed.SeveralMethod" if several else _METHOD, method)

    # ------------------------------------------------------------------------------------ calls
    def _of_call(self, context: MethodSigContext) -> FunctionLike:
        call = _argument(context.type)
        if not isinstance(call, CallableType):
            return context.default_signature
        return self._taking(_REF, call, call.ret_type, context.default_signature)

    def _of_bind(self, context: MethodSigContext) -> FunctionLike:
        callee = _argument(context.type)
        if not isinstance(callee, CallableType):
            return context.default_signature
        return self._taking(_NODE, callee, context.default_signature.ret_type, context.default_signature)

    def _taking(self, more: str, callee: CallableType, result: Type, like: CallableType) -> CallableType:
        """The signature of `callee` with another result, where each parameter also accepts `more` of its own type."""
        taken: Sequence[Type] = [UnionType.make_union([kind, self._instance(more, kind)]) for kind in callee.arg_types]
        return callee.copy_modified(arg_types=taken, ret_type=result, fallback=like.fallback, name=like.name)


def _mark(context: ClassDefContext) -> bool:
    info = context.cls.info
    info.metadata[_MARK] = {}
    for name in _OF_ACTOR_CLASSES:
        var = Var(name, AnyType(TypeOfAny.special_form))
        var.info, var._fullname, var.is_classvar = info, f"{info.fullname}.{name}", True  # noqa: SLF001  (as mypy's own plugins do)
        info.names.setdefault(name, SymbolTableNode(MDEF, var, plugin_generated=True))
    return True


def _refuse(context: FunctionContext) -> Type:
    context.api.fail("Actors cannot be instantiated directly: call .remote() of the class", context.context)
    return context.default_return_type


def _proxy(context: AnalyzeTypeContext) -> Type:
    """``ActorProxy[C]``: a handle that knows all methods."""
    args = [context.api.analyze_type(arg) for arg in context.type.args]
    return context.api.named_type(_HANDLE, args or [AnyType(TypeOfAny.from_omitted_generics)])


def _made_by(kind: ProperType) -> Instance | None:
    made = get_proper_type(kind.items[0].ret_type) if isinstance(kind, FunctionLike) else get_proper_type(getattr(kind, "item", None))
    return made if isinstance(made, Instance) else None


def _argument(kind: ProperType) -> ProperType | None:
    return get_proper_type(kind.args[0]) if isinstance(kind, Instance) and kind.args else None


def _member(context: AttributeContext, name: str, owner: Instance) -> ProperType:
    """The type of an attribute; mypy reports a missing one."""
    checker = cast("Any", context.api).expr_checker
    return get_proper_type(cast("Type", checker.analyze_external_member_access(name, owner, context.context)))
