"""The table of operators, from which `Var` gets its methods and the interpreter its operations.

Functions of `operator` decide about reflection as Python does, since they run where the operands are.
"""

from __future__ import annotations

import copy
import math
import operator
from collections.abc import Callable
from typing import Any

#: also reflected; name -> function
BINARY: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "matmul": operator.matmul,
    "truediv": operator.truediv,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "divmod": divmod,
    "pow": pow,
    "lshift": operator.lshift,
    "rshift": operator.rshift,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
}

IN_PLACE: dict[str, Callable[..., Any]] = {
    "iadd": operator.iadd,
    "isub": operator.isub,
    "imul": operator.imul,
    "imatmul": operator.imatmul,
    "itruediv": operator.itruediv,
    "ifloordiv": operator.ifloordiv,
    "imod": operator.imod,
    "ipow": operator.ipow,
    "ilshift": operator.ilshift,
    "irshift": operator.irshift,
    "iand": operator.iand,
    "ior": operator.ior,
    "ixor": operator.ixor,
}

#: Python reflects these by itself.
COMPARISONS: dict[str, Callable[..., Any]] = {
    "lt": operator.lt,
    "le": operator.le,
    "eq": operator.eq,
    "ne": operator.ne,
    "gt": operator.gt,
    "ge": operator.ge,
}

#: operations of one operand and perhaps literals; the result stays there
UNARY: dict[str, Callable[..., Any]] = {
    "neg": operator.neg,
    "pos": operator.pos,
    "abs": abs,
    "invert": operator.invert,
    "round": round,
    "trunc": math.trunc,
    "floor": math.floor,
    "ceil": math.ceil,
    "copy": copy.copy,
    "deepcopy": lambda value, _memo=None: copy.deepcopy(value),
}

#: Python needs the result immediately
ANSWERED: dict[str, Callable[..., Any]] = {
    "bool": bool,
    "len": len,
    "int": int,
    "float": float,
    "complex": complex,
    "index": operator.index,
    "contains": operator.contains,
    "bytes": bytes,
    "length_hint": operator.length_hint,
    "fspath": lambda value: value.__fspath__(),
}


def dunder(name: str) -> str:
    return f"__{name}__"
