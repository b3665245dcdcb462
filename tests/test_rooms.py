"""The map of the rooms in CONTRIBUTING.md is true: imports point down, nested ones included, and never in a circle."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "nseg"
FRONT_DOOR = "nseg"
MAX_LINES, MAX_FUNCTION = 400, 60


def room_order() -> list[str]:
    """The rooms of the map, highest first."""
    (text,) = re.findall(r"```text rooms\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)
    return [line.split()[0] for line in text.splitlines() if line.strip()]


@cache
def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imports(name: str) -> frozenset[str]:
    """Modules of the package that a module imports anywhere in its code; ``from a import b`` is ``a.b`` if that is one."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(modules()[name].read_text())):
        if isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: relative import"
            whole = {f"{node.module}.{one.name}" for one in node.names}
            found |= {one if one in modules() else str(node.module) for one in whole}
    return frozenset(one for one in found if one in modules() and one != name)


def room_of(name: str) -> str:
    return FRONT_DOOR if name == FRONT_DOOR else name.split(".")[1]


def test_the_map_names_every_room() -> None:
    rooms = {room_of(name) for name in modules()} - {FRONT_DOOR}
    assert sorted(room_order()) == sorted(rooms)


@pytest.mark.parametrize("name", sorted(modules()))
def test_imports_point_down(name: str) -> None:
    order = [FRONT_DOOR, *room_order()]
    below = order[order.index(room_of(name)) :]
    assert {one for one in imports(name) if room_of(one) not in below} == set()


def test_no_import_cycle() -> None:
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join((*path[path.index(name) :], name))
        if name not in done:
            for one in sorted(imports(name)):
                visit(one, (*path, name))
            done.add(name)

    for name in sorted(modules()):
        visit(name, ())
    assert done == set(modules())


def test_every_room_says_what_lives_in_it() -> None:
    for room in room_order():
        if (PACKAGE / room).is_dir():
            text = ast.get_docstring(ast.parse((PACKAGE / room / "__init__.py").read_text()))
            assert text is not None, room
            assert "ay import" in text, f"{room}: its docstring must say what it may import"


def test_files_and_functions_fit_in_a_head() -> None:
    long: list[str] = []
    for name, path in modules().items():
        text = path.read_text()
        if len(text.splitlines()) > MAX_LINES:
            long.append(f"{name}: {len(text.splitlines())} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and node.end_lineno is not None:
                size = node.end_lineno - node.lineno + 1
                if size > MAX_FUNCTION:
                    long.append(f"{name}.{node.name}: {size} lines")
    assert long == []
