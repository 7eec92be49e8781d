"""What is wrong with a configuration, in one line per problem.

Each line names the key and its value, what is allowed, and the nearest match if there is one. The
allowed values come from the types of the settings.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from remuda.config.base import OneOf, Settings, Variant
from remuda.config.root import Config
from remuda.files import value_text

_MOST_PROBLEMS = 20  # that are told; finding the nearest match of each takes a while
_LONGEST_VALUE = 60  # characters of a value that a line shows
_TYPE_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


def explain(error: ValidationError, values: Mapping[str, Any]) -> list[str]:
    """The problems of plain values that are not a valid Config, one line each."""
    problems = error.errors(include_url=False)
    # A list with a bad item is reported a second time, as too short.
    reported = {problem["loc"][:-1] for problem in problems}
    lines = [
        _explain(problem, values)
        for problem in problems[:_MOST_PROBLEMS]
        if problem["type"] != "too_short" or problem["loc"] not in reported
    ]
    if len(problems) > _MOST_PROBLEMS:
        lines.append(f"and {len(problems) - _MOST_PROBLEMS:,} more problems")
    return list(dict.fromkeys(lines))


def suggest(word: str, allowed: Iterable[str]) -> str:
    """'; did you mean …?' for the nearest match, or nothing."""
    close = difflib.get_close_matches(word.lower(), list(allowed), n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else ""


def _explain(error: ErrorDetails, values: Mapping[str, Any]) -> str:
    key, owner, field = _locate(error["loc"], values)
    value, kind = error["input"], error["type"]
    if kind == "extra_forbidden":
        return _unknown_key(key, value, owner)
    if kind == "unknown_kind":
        tag, allowed = error["ctx"]["tag"], error["ctx"]["allowed"]
        hint = suggest(str(value.get(tag)), allowed.split(", "))
        return f"{key}.{tag}={short(value.get(tag))}: unknown{hint or ';'} allowed: {allowed}"
    if kind == "value_error":
        text = str(error["ctx"]["error"])
        if isinstance(value, (dict, Settings)):
            return text if not key or text.startswith(f"{key}.") else f"{key}: {text}"
        return f"{key}={short(value)}: {text}"
    if kind == "missing":
        return f"{key}: required, but not given"
    allowed = _allowed(field.annotation, field.metadata) if field else error["msg"]
    words = allowed.removeprefix("a list of ").split(", ")
    hint = suggest(str(value), words) if kind in ("literal_error", "unknown_name") else ""
    return f"{key}={short(value)}: not allowed{hint or ';'} allowed: {allowed}"


def _unknown_key(key: str, value: Any, owner: type[Settings]) -> str:
    section = key.rpartition(".")[0]
    names = sorted(owner.model_fields)
    dotted = [f"{section}.{name}" if section else name for name in names]
    hint = suggest(key, dotted) or suggest(key, _all_keys(Config))
    under = f" under {section}" if section else ""
    return f"{key}={short(value)}: unknown key{hint or ';'} allowed{under}: {', '.join(names)}"


def _locate(
    loc: tuple[int | str, ...], values: Any
) -> tuple[str, type[Settings], FieldInfo | None]:
    """The dotted key of a pydantic location, the section it is in, and its field if known."""
    owner: type[Settings] = Config
    field: FieldInfo | None = None
    key: list[str] = []
    for part in loc:
        sections = _sections(field.annotation) if field else [Config]
        if isinstance(part, int):
            key[-1] += f"[{part}]"
        elif sections:
            owner = _kind(sections[0], values)
            key.append(short(part))
            field = owner.model_fields.get(part)
        else:  # which member of a union refused the value
            continue
        values = _item(values, part)
    return ".".join(key), owner, field


def _kind(section: type[Settings], values: Any) -> type[Settings]:
    """The class that plain values of a section are checked against."""
    return (issubclass(section, Variant) and section.kind_of(values)) or section


def _item(values: Any, part: int | str) -> Any:
    try:
        return values[part]
    except (TypeError, KeyError, IndexError):
        return None


def _sections(annotation: Any) -> list[type[Settings]]:
    """The settings classes inside an annotation."""
    if isinstance(annotation, type) and issubclass(annotation, Settings):
        return [annotation]
    return [section for part in get_args(annotation) for section in _sections(part)]


def _all_keys(section: type[Settings], *path: str) -> Iterator[str]:
    """The dotted keys of a section and the sections inside it."""
    for name, field in section.model_fields.items():
        yield ".".join((*path, name))
        # Lists of changes are not addressed by key, and a method may contain another method.
        if name == "schedule" or name in path:
            continue
        for inner in _sections(field.annotation):
            for kind in _kinds(inner):
                yield from _all_keys(kind, *path, name)


def _kinds(section: type[Settings]) -> list[type[Settings]]:
    if not issubclass(section, Variant):
        return [section]
    return [section.kinds[name] for name in section.names()]


def _allowed(annotation: Any, metadata: Sequence[Any] = ()) -> str:
    """What a type admits, in words."""
    for note in metadata:
        if isinstance(note, OneOf):
            return note.allowed
    origin = get_origin(annotation)
    if origin is Literal:
        return ", ".join(map(str, get_args(annotation)))
    if origin is Annotated:
        inner, *notes = get_args(annotation)
        return _allowed(inner, notes)
    if origin in (Union, UnionType):
        parts = [part for part in get_args(annotation) if part is not type(None)]
        words = ", or ".join(_allowed(part, metadata) for part in parts)
        return f"{words}, or null" if len(parts) < len(get_args(annotation)) else words
    if origin is tuple:
        inner = get_args(annotation)
        if len(inner) == 2 and inner[1] is Ellipsis:
            return f"a list of {_allowed(inner[0])}"
        return f"a list of {len(inner)}: {_allowed(inner[0])}"
    for section in _sections(annotation):
        if issubclass(section, Variant):
            return f"a section with {section.tag}: {', '.join(section.names())}"
        return f"a section with {', '.join(section.model_fields)}"
    return " ".join([_TYPE_WORDS.get(annotation, str(annotation)), *_limits(metadata)])


def _limits(metadata: Sequence[Any]) -> Iterator[str]:
    notes = [inner for note in metadata for inner in getattr(note, "metadata", [note])]
    words = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
    for note in notes:
        for name, word in words.items():
            if hasattr(note, name):
                yield f"{word} {getattr(note, name)}"
    for note in notes:
        if getattr(note, "pattern", None):
            yield f"like {note.pattern}"


def short(value: Any) -> str:
    """A value as a line shows it."""
    try:
        text = "null" if value is None else str(value)
    except (ValueError, RecursionError):  # a number of thousands of digits
        return value_text(value)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 3] + "..."
