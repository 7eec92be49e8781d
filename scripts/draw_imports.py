"""Draw which room of the package imports which: the picture in docs/architecture.md.

    python scripts/draw_imports.py            print it
    python scripts/draw_imports.py --write    put it into docs/architecture.md

It reads the source and imports none of it. A room is a file or folder at the top of `src/remuda`.
Imports inside functions and behind TYPE_CHECKING count like all others.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "remuda"
PAGE = ROOT / "docs" / "architecture.md"
START, END = "<!-- imports -->\n```\n", "```\n<!-- /imports -->"

Graph = Mapping[str, frozenset[str]]


@cache
def modules() -> dict[str, Path]:
    """Every module of the package by its full name; a folder's `__init__` has the folder's name."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def parsed(module: str) -> ast.Module:
    return ast.parse(modules()[module].read_text())


def imported_names(node: ast.AST, module: str) -> list[str]:
    """The full names in an import statement; none for other nodes.

    `from a import b` gives `a.b`, which may be a module or something inside `a`.
    """
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    base = node.module or ""
    if node.level:
        parts = module.split(".")
        is_folder = modules()[module].name == "__init__.py"
        above = parts[: len(parts) - node.level + is_folder]
        base = ".".join([*above, *filter(None, [node.module])])
    return [f"{base}.{alias.name}" for alias in node.names]


def module_named(name: str) -> str | None:
    """The module of the package that a full name is, or is inside of."""
    while name and name not in modules():
        name = name.rpartition(".")[0]
    return name or None


@cache
def module_imports() -> Graph:
    """What each module imports from the package, anywhere in the file."""
    return {
        module: frozenset(
            target
            for node in ast.walk(parsed(module))
            for name in imported_names(node, module)
            if (target := module_named(name)) and target != module
        )
        for module in modules()
    }


def room_of(module: str) -> str | None:
    """The room a module is in; None for the package's own `__init__` and `__main__`."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] != "__main__" else None


@cache
def room_imports() -> Graph:
    """What each room imports from other rooms."""
    found: dict[str, set[str]] = {room: set() for room in map(room_of, modules()) if room}
    for module, targets in module_imports().items():
        room = room_of(module)
        if room:
            found[room].update(filter(None, map(room_of, targets)))
    return {room: frozenset(targets - {room}) for room, targets in found.items()}


def cycle(graph: Graph) -> list[str]:
    """Names that import each other in a circle, the first one repeated; empty without a circle."""
    finished: set[str] = set()

    def visit(name: str, path: list[str]) -> Iterator[list[str]]:
        if name in path:
            yield [*path[path.index(name) :], name]
        elif name not in finished:
            for target in sorted(graph[name]):
                yield from visit(target, [*path, name])
            finished.add(name)

    return next((found for name in sorted(graph) for found in visit(name, [])), [])


def top_down(graph: Graph) -> list[str]:
    """All names, each above everything it imports."""

    @cache
    def height(name: str) -> int:
        return 1 + max(map(height, graph[name]), default=0)

    return sorted(graph, key=lambda name: (-height(name), name))


def picture() -> str:
    """A row per room, a mark for each room above it that imports it."""
    rooms = room_imports()
    circle = cycle(rooms)
    if circle:
        raise SystemExit(f"rooms import each other: {' -> '.join(circle)}")
    order = top_down(rooms)
    wide = max(map(len, order))
    lines = [" " * (wide + 4) + "".join(f"{number:3}" for number in range(1, len(order) + 1))]
    for row, room in enumerate(order):
        marks = ["  ●" if room in rooms[above] else "  ·" for above in order[:row]]
        lines.append(f"{row + 1:3} {room:{wide}}" + "".join(marks) + "  ╲")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--write", action="store_true", help="put it into docs/architecture.md")
    if not parser.parse_args().write:
        print(picture(), end="")
        return
    before, _, rest = PAGE.read_text().partition(START)
    _, _, after = rest.partition(END)
    PAGE.write_text(before + START + picture() + END + after)


if __name__ == "__main__":
    main()
