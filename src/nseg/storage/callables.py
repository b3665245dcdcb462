"""What functions and classes consist of: code, defaults, closures and the constants that they use."""

from __future__ import annotations

import dis
import functools
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

VERSIONED = frozenset({"torch", "torch_geometric", "nseg", "builtins", *sys.stdlib_module_names} - {"__main__"})
"""Packages whose functions and classes are known by name, like those of all installed packages."""

INSTALLED = ("site-packages", "dist-packages")  # folders of installed packages

HAS_DOCSTRING = 0x4000000  # flag of code, from Python 3.13
GENERATED = "<string>"  # file name of the methods that dataclasses and named tuples write themselves

CONSTANTS = (bool, int, float, complex, str, bytes, tuple, frozenset, Enum, type(None))
"""Kinds of values that cannot change by themselves."""

FOLLOWED = (
    *CONSTANTS,
    *(types.FunctionType, types.BuiltinFunctionType, types.ModuleType, functools.partial, type),
)
"""Kinds of global names that are part of a function. Others, such as a log or a list that is filled, are not."""


def qualified_name(value: Any) -> str:
    """Module and name of a function or class."""
    return f"{getattr(value, '__module__', None) or 'builtins'}.{value.__qualname__}"


@dataclass(frozen=True)
class Referred:
    """A function that another one calls by its global name: hashed by that name, and its content once, at the end."""

    function: types.FunctionType


def is_library(value: Any) -> bool:
    """Whether a function or class is known by its name: that of a package which is installed, not edited."""
    name = qualified_name(value)
    if "<" in name:  # a lambda or a local function
        return False
    file = getattr(sys.modules.get(getattr(value, "__module__", None) or "builtins"), "__file__", None) or ""
    return name.partition(".")[0] in VERSIONED or any(folder in file for folder in INSTALLED)


def callable_parts(value: Any) -> Sequence[Any] | None:
    """What a function, or something like one, consists of; None if the value is nothing of the kind."""
    for kind, parts in _PARTS:
        if isinstance(value, kind):
            found: Sequence[Any] = parts(value)
            return found
    if hasattr(value, "__wrapped__"):  # a function with a cache
        return type(value).__qualname__, value.__wrapped__
    return (value.code,) if type(value).__qualname__.endswith("ScriptFunction") else _built_in_parts(value)


def _built_in_parts(value: Any) -> Sequence[Any] | None:
    """Name of a function or method that is not written in Python, with the object that it is bound to."""
    if not callable(value) or not isinstance(getattr(value, "__name__", None), str) or isinstance(value, type):
        return None
    owner = getattr(value, "__self__", getattr(value, "__objclass__", None))
    bound = None if isinstance(owner, types.ModuleType) else qualified_name(owner) if isinstance(owner, type) else owner
    return getattr(value, "__module__", None), getattr(value, "__qualname__", value.__name__), bound


def class_parts(value: type) -> Sequence[Any]:
    """Methods, constants and bases of a class."""
    return dict(_members(value)), list(value.__bases__)


def _members(value: type) -> Iterator[tuple[str, Any]]:
    for name, member in vars(value).items():
        function = getattr(member, "__func__", getattr(member, "fget", member))
        if isinstance(function, types.FunctionType):
            if function.__code__.co_filename != GENERATED:
                yield name, member
        elif not name.startswith("__") and isinstance(member, CONSTANTS):
            yield name, member


def _function_parts(value: types.FunctionType) -> Sequence[Any]:
    if is_library(value):
        return (qualified_name(value),)
    used = {name: value.__globals__[name] for name in _global_names(value.__code__) if name in value.__globals__}
    known = {
        name: Referred(one) if isinstance(one, types.FunctionType) else one
        for name, one in used.items()
        if isinstance(one, FOLLOWED)
    }
    # a documentation string is a constant of the code, but changes nothing
    constants = tuple(None if n == 0 and one == value.__doc__ else one for n, one in enumerate(value.__code__.co_consts))
    code = _code_parts(value.__code__.replace(co_consts=constants))
    return *code, value.__defaults__, value.__kwdefaults__, value.__closure__, known


def _code_parts(code: types.CodeType) -> Sequence[Any]:
    arguments = code.co_argcount + code.co_kwonlyargcount
    return (
        code.co_code,
        code.co_consts,
        code.co_names,
        code.co_varnames[:arguments],
        (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags & ~HAS_DOCSTRING),
        getattr(code, "co_exceptiontable", b""),  # from Python 3.11
    )


def _global_names(code: types.CodeType) -> set[str]:
    """Global names that a function and the functions in it use."""
    names = {one.argval for one in dis.get_instructions(code) if one.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    nested = (one for one in code.co_consts if isinstance(one, types.CodeType))
    return names.union(*map(_global_names, nested))


def _is_empty(cell: types.CellType) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return True
    return False


_PARTS: tuple[tuple[Any, Callable[[Any], Sequence[Any]]], ...] = (
    (types.FunctionType, _function_parts),
    (types.CodeType, _code_parts),
    (types.CellType, lambda cell: () if _is_empty(cell) else (cell.cell_contents,)),
    (types.MethodType, lambda method: (method.__func__, method.__self__)),
    (functools.partial, lambda partial: (partial.func, partial.args, partial.keywords)),
    (types.ModuleType, lambda module: (module.__name__,)),
    ((staticmethod, classmethod), lambda method: (method.__func__,)),
    (property, lambda method: (method.fget, method.fset)),
)
"""What each kind of function consists of."""
