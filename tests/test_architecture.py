"""The shape of the package, read from its source: rooms, imports, sizes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from scripts.draw_imports import (
    END,
    PAGE,
    SOURCE,
    START,
    cycle,
    imported_names,
    module_imports,
    module_named,
    modules,
    parsed,
    picture,
    room_imports,
)

MOST_ENTRIES = 15
# Pairs of rooms of which one imports the other: 127 before the rooms, 57 before `compare`, which
# asks nine others, 66 before `config` and `data` asked `files` what a file may cost. May only be
# lowered.
MOST_EDGES = 68
MOST_LINES = 400
MOST_LINES_OF_A_FUNCTION = 60
# Where settings of methods and networks are declared: only there, and in the file that implements a
# variant, may a variant be asked for by its class.
SETTINGS = re.compile(r"remuda\.config\.(methods|networks)")


def test_the_package_has_few_entries() -> None:
    uncounted = {"__init__.py", "__main__.py", "py.typed", "__pycache__"}
    entries = {path.name for path in SOURCE.iterdir()} - uncounted
    assert len(entries) <= MOST_ENTRIES, sorted(entries)


def test_rooms_import_few_other_rooms() -> None:
    edges = [f"{room} -> {target}" for room, all in room_imports().items() for target in all]
    print(f"{len(edges)} edges:", *sorted(edges), sep="\n")
    assert len(edges) <= MOST_EDGES


def test_rooms_do_not_import_each_other_in_a_circle() -> None:
    assert cycle(room_imports()) == []


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    assert cycle(module_imports()) == []


def test_modules_are_short() -> None:
    lines = {module: len(path.read_text().splitlines()) for module, path in modules().items()}
    assert {module: count for module, count in lines.items() if count > MOST_LINES} == {}


def test_functions_are_short() -> None:
    lines = {
        f"{module}.{node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
        for module in modules()
        for node in ast.walk(parsed(module))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {name: n for name, n in lines.items() if n > MOST_LINES_OF_A_FUNCTION} == {}


# ---------------------------------------------------------------------------- config without torch


def _run_on_import(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes of a module that run when it is imported."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        yield from _run_on_import(child)


def _loaded_with(module: str) -> dict[str, list[str]]:
    """Everything that importing a module imports, each with the modules on the way to it."""
    found: dict[str, list[str]] = {}
    waiting = [(module, [module])]
    while waiting:
        name, path = waiting.pop()
        if name in found:
            continue
        found[name] = path
        inside = module_named(name)
        if inside is None:
            continue
        above = name.rpartition(".")[0]
        wanted = [above] if above else []
        for node in _run_on_import(parsed(inside)):
            wanted += imported_names(node, inside)
        waiting += [(one, [*path, one]) for one in wanted]
    return found


def test_configuration_is_loaded_without_torch() -> None:
    for module in modules():
        if module.startswith("remuda.config") or module in ("remuda", "remuda.cli"):
            paths = _loaded_with(module)
            heavy = [path for name, path in paths.items() if name.split(".")[0] == "torch"]
            assert heavy == []


def test_the_walk_through_imports_finds_torch_where_it_is() -> None:
    assert any(name.split(".")[0] == "torch" for name in _loaded_with("remuda.gan.cell"))


# ---------------------------------------------------------------------------- variants


def _variants() -> dict[str, str]:
    """The settings classes of methods and networks, with the name of the file of each."""
    return {
        node.name: re.sub(r"(?<!^)(?=[A-Z])", "_", node.name.removesuffix("Settings")).lower()
        for module in modules()
        if SETTINGS.match(module)
        for node in parsed(module).body
        if isinstance(node, ast.ClassDef) and node.name.endswith("Settings")
    }


def _asked_for(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The classes that isinstance, issubclass and match statements ask for, with their lines."""
    for node in ast.walk(tree):
        asked: ast.AST | None = None
        if isinstance(node, ast.MatchClass):
            asked = node.cls
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("isinstance", "issubclass")
        ):
            asked = node.args[1]
        if asked is not None:
            for part in ast.walk(asked):
                if isinstance(part, ast.Name | ast.Attribute):
                    yield part.lineno, part.id if isinstance(part, ast.Name) else part.attr


def test_only_a_variant_asks_for_its_own_settings() -> None:
    variants = _variants()
    found = [
        f"{module}:{line}: {name}"
        for module in modules()
        if not SETTINGS.match(module)
        for line, name in _asked_for(parsed(module))
        if name in variants and module.split(".")[-1] != variants[name]
    ]
    assert found == []


def test_questions_for_a_variant_are_found() -> None:
    assert {
        "GapSettings": "gap",
        "ClassDcganSettings": "class_dcgan",
    }.items() <= _variants().items()
    code = "isinstance(x, A | b.C)\nissubclass(y, (D, E))\nmatch z:\n    case F(): pass\n"
    assert {name for _, name in _asked_for(ast.parse(code))} >= {*"ACDEF"}


# ---------------------------------------------------------------------------- the picture


def test_the_picture_of_the_imports_is_up_to_date() -> None:
    """If it is not: python scripts/draw_imports.py --write."""
    shown = PAGE.read_text().partition(START)[2].partition(END)[0]
    assert shown == picture()


# ---------------------------------------------------------------------------- changes on disk

# Where else than in `files/disk.py` something is written, renamed or removed, and why there.
EXCUSED = {
    "remuda.files.disk": "the one place",
    "remuda.parallel.shared_memory": "folders in memory, gone with the processes that share them",
    "remuda.parallel.ranks": "a lock in such a folder",
    "remuda.data.shared": "data in such a folder",
    "remuda.data.fetch": "downloads, which are known by their digest",
    "remuda.data.formats.mnist": "such a download, damaged",
    "remuda.parallel.transports.fork_server": "not a file: the name of a process",
    "remuda.cli": "not a file: the standard output is closed",
    "remuda.cli.compare": "what a process in the background says",
    "remuda.compare.runner": "what the processes that train say",
}
_METHODS = {"unlink", "mkdir", "rmdir", "rename", "write_text", "write_bytes", "touch", "tofile"}
_METHODS |= {"symlink_to", "hardlink_to", "chmod", "extractall"}
_FUNCTIONS = {
    "os": {"unlink", "remove", "rename", "renames", "replace", "link", "symlink", "mkdir", "rmdir"}
    | {"makedirs", "removedirs", "truncate", "ftruncate", "utime", "chmod", "write", "writev"}
    | {"fsync", "fdatasync", "mkfifo", "mknod", "sendfile", "pwrite"},
    "shutil": {"rmtree", "move", "copy", "copy2", "copyfile", "copytree", "unpack_archive"},
    "tempfile": {"mkdtemp", "mkstemp", "NamedTemporaryFile", "TemporaryDirectory", "TemporaryFile"},
}


def _writes(call: ast.Call, place: int) -> bool:
    """Whether this call of `open` says in its mode, at this place, that it writes."""
    modes = [*call.args[place : place + 1], *(key.value for key in call.keywords)]
    return any(
        isinstance(mode, ast.Constant) and isinstance(mode.value, str) and {*mode.value} & {*"wax+"}
        for mode in modes
    )


def _changes_disk(call: ast.Call) -> bool:
    match call.func:
        case ast.Name("open"):
            return _writes(call, 1)
        case ast.Attribute(ast.Name("disk")):
            return False
        case ast.Attribute(ast.Name("os"), "open"):
            return "O_RDONLY" not in ast.unparse(call)
        case ast.Attribute(ast.Name(module), name) if module in _FUNCTIONS:
            return name in _FUNCTIONS[module]
        case ast.Attribute(_, "open"):
            return _writes(call, 0)
        case ast.Attribute(_, "replace"):  # of a path; a text's takes two, a dataclass's names
            return len(call.args) == 1 and not call.keywords
        case ast.Attribute(_, name):
            return name in _METHODS
    return False


def changes_on_disk(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The calls that write, rename, link or remove, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _changes_disk(node):
            yield node.lineno, ast.unparse(node.func)


def test_files_and_folders_are_changed_in_one_place() -> None:
    """So that `tests/test_crashes.py` meets every change."""
    found = {
        module: [f"{line}: {name}" for line, name in changes_on_disk(parsed(module))]
        for module in modules()
    }
    assert {name: calls for name, calls in found.items() if calls and name not in EXCUSED} == {}
    assert [name for name in EXCUSED if not found[name]] == [], "they need no excuse any more"


def test_changes_on_disk_are_found() -> None:
    code = """
path.unlink(); path.mkdir(parents=True); path.write_text("x"); array.tofile(path); path.touch()
open(path, "w"); path.open("ab"); path.open(mode="r+"); os.open(path, os.O_RDWR | os.O_CREAT)
os.replace(a, b); source.replace(target); shutil.rmtree(path); tempfile.mkdtemp(); os.link(a, b)
"""
    assert len(list(changes_on_disk(ast.parse(code)))) == 14
    harmless = """
text.replace("a", "b"); replace(run, name="x"); run.replace(name="x"); comm.replace()
open(path); path.open("rb"); os.open(path, os.O_RDONLY); names.remove("x"); disk.remove(path)
"""
    assert list(changes_on_disk(ast.parse(harmless))) == []
