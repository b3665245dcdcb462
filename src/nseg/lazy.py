"""Public names that are imported on first use, so that importing a package costs almost nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, exports: Mapping[str, Sequence[str]], subpackages: Sequence[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package with lazy names (PEP 562).

    A public name must differ from the names of the package's own modules: importing ``nseg.x`` binds ``x`` on ``nseg``
    to that module, and ``__getattr__`` is then never called.

    Args:
        package: ``__name__`` of the package.
        exports: public names, by the module that defines them.
        subpackages: public names that are packages inside this one.
    """
    origin = {name: module for module, names in exports.items() for name in names}

    def load(name: str) -> Any:
        if name in subpackages:
            return import_module(f"{package}.{name}")
        if name not in origin:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(origin[name]), name)
        setattr(sys.modules[package], name, value)  # the next access does not come here
        return value

    def known_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *origin, *subpackages})

    return load, known_names
