"""From a preset or a YAML file and `key=value` overrides to a valid Config, or a helpful error."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml
from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from remuda.config.base import Settings
from remuda.config.root import Config
from remuda.errors import ConfigError

DEFAULT_PRESET = "quickstart"

# What `section=value` means, so that `grid=3x3` and `data=mnist` read as people say them.
SHORTHANDS = {"grid": "shape", "data": "source", "method": "name", "network": "family"}
# Sections whose keys depend on one of them: choosing another replaces the section.
TAGS = {"method": "name", "network": "family"}


class _Loader(yaml.SafeLoader):
    """Plain YAML with today's numbers: 1e-3 is a number, and 0x3 is a (bad) grid, not hex 3.

    No setting is a date, and a word that looks like one is text.
    """


_Loader.yaml_implicit_resolvers = {
    first: [
        (tag, pattern)
        for tag, pattern in resolvers
        if not tag.endswith((":int", ":float", ":timestamp"))
    ]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(r"[-+]?(0|[1-9]\d*)$"), list("-+0123456789")
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(\d+\.\d*|\.\d+|\d+)([eE][-+]?\d+)?$|[-+]?\.inf$|\.nan$"),
    list("-+.0123456789"),
)


class _Dumper(yaml.SafeDumper):
    """Quotes exactly the text that the loader would not read back as text."""


_Dumper.yaml_implicit_resolvers = _Loader.yaml_implicit_resolvers


def _parse(text: str) -> Any:
    try:
        return _Loader(text).get_single_data()
    except RecursionError:
        raise yaml.YAMLError("nested too deeply") from None


_TYPE_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


def load_config(source: str | None = None, overrides: Sequence[str] = ()) -> Config:
    """The configuration of a preset name or YAML file, with `key=value` overrides applied."""
    # Among themselves first, so that method=independent drops the base's section, but none of
    # the overrides, whichever order they come in.
    layer: dict[str, Any] = {}
    for override in overrides:
        layer = _merge(layer, _parse_override(override))
    return validate(_merge(_tagged(_read_source(source or DEFAULT_PRESET)), layer))


def validate(values: Mapping[str, Any]) -> Config:
    """A Config of plain values, or a ConfigError with one line per problem."""
    try:
        return Config.model_validate(_tagged(_expand(values)))
    except ValidationError as error:
        problems = error.errors()
        # A list with a bad item is reported a second time, as too short.
        told = {problem["loc"][:-1] for problem in problems}
        lines = [
            _explain(problem)
            for problem in problems
            if problem["type"] != "too_short" or problem["loc"] not in told
        ]
        raise ConfigError("\n".join(dict.fromkeys(lines))) from None


def preset_names() -> list[str]:
    folder = resources.files("remuda.config") / "presets"
    return sorted(
        entry.name.removesuffix(".yaml")
        for entry in folder.iterdir()
        if entry.name.endswith(".yaml")
    )


def preset_summary(name: str) -> str:
    """The one line that says what a preset is for: the comment at its top."""
    return _preset_text(name).splitlines()[0].lstrip("# ")


def render(config: Config) -> str:
    """The configuration as YAML, every key with its description; loads back to an equal Config."""
    return "\n".join(_render_section(config, indent=0)) + "\n"


def suggest(word: str, allowed: Iterable[str]) -> str:
    """'; did you mean …?' for the nearest match, or nothing."""
    close = difflib.get_close_matches(word.lower(), list(allowed), n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else ""


# ---------------------------------------------------------------------------------- reading


def _preset_text(name: str) -> str:
    return (resources.files("remuda.config") / "presets" / f"{name}.yaml").read_text("utf-8")


def _read_source(source: str) -> dict[str, Any]:
    if source in preset_names():
        return _based(_parse_yaml(_preset_text(source), source), source)
    path = Path(source)
    try:
        found = path.is_file()
    except OSError:  # a name too long, a folder that may not be entered
        found = False
    if not found:
        names = preset_names()
        hint = suggest(source, names) or ";"
        raise ConfigError(
            f"{source}: neither a preset nor a file{hint} presets: {', '.join(names)}"
        )
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{source}: cannot be read as text: {error}") from None
    return _based(_parse_yaml(text, source), source)


def _based(values: dict[str, Any], source: str) -> dict[str, Any]:
    """Values over those of the preset that they name as their base, if they name one."""
    base = values.pop("preset", None)
    if base is None:
        return _expand(values)
    names = preset_names()
    if base not in names:
        hint = suggest(str(base), names) or ";"
        raise ConfigError(f"preset={base}: unknown in {source}{hint} allowed: {', '.join(names)}")
    return _merge(_read_source(base), values)


def _parse_yaml(text: str, source: str) -> dict[str, Any]:
    try:
        values = _parse(text)
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = f" line {where.line + 1}:" if where else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise ConfigError(f"{source}:{line} not valid YAML: {problem}") from None
    if values is None:
        return {}
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise ConfigError(f"{source}: expected 'key: value' lines, found {type(values).__name__}")
    return values


def _parse_override(override: str) -> dict[str, Any]:
    key, equals, text = override.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        raise ConfigError(f"{override}: expected key=value, for example rounds=20 or grid=3x3")
    try:
        value = _parse(text) if text.strip() else ""
    except yaml.YAMLError:
        raise ConfigError(f"{override}: the value is not valid YAML") from None
    for part in reversed(parts):
        value = {part: value}
    assert isinstance(value, dict)
    return value


def _expand(values: Mapping[str, Any]) -> dict[str, Any]:
    """Shorthands written out: `grid: 3x3` becomes `grid: {shape: 3x3}`."""
    return {key: _expand_one(key, value) for key, value in values.items()}


def _expand_one(key: str, value: Any) -> Any:
    if key == "members" and isinstance(value, list):
        return [
            {name: _expand_one(name, part) for name, part in entry.items()}
            if isinstance(entry, dict)
            else entry
            for entry in value
        ]
    if key in SHORTHANDS and value is not None and not isinstance(value, dict):
        return {SHORTHANDS[key]: value}
    return value


def _tagged(values: Mapping[str, Any]) -> dict[str, Any]:
    """Sections that leave out which kind they are: they are of the default kind."""
    return {
        key: {TAGS[key]: _tags(key)[0], **value}
        if key in TAGS and isinstance(value, dict)
        else value
        for key, value in values.items()
    }


def _merge(base: Mapping[str, Any], layer: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in _expand(layer).items():
        old = merged.get(key)
        if not (isinstance(old, dict) and isinstance(value, dict)):
            merged[key] = value
            continue
        tag = TAGS.get(key)
        if tag in value and tag in old and value[tag] != old[tag]:
            old = {}
        merged[key] = {**old, **value}
    return merged


# ---------------------------------------------------------------------------------- explaining


def _explain(error: ErrorDetails) -> str:
    """One line: the key, the value, what is allowed and the nearest match."""
    key, owner, field = _locate(error["loc"])
    value = error["input"]
    kind = error["type"]
    if kind == "extra_forbidden":
        section = key.rpartition(".")[0]
        names = sorted(owner.model_fields)
        dotted = [f"{section}.{name}" if section else name for name in names]
        hint = suggest(key, dotted) or suggest(key, _all_keys(Config))
        under = f" under {section}" if section else ""
        return f"{key}={_short(value)}: unknown key{hint or ';'} allowed{under}: {', '.join(names)}"
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        section = key.rpartition(".")[2]
        tag = TAGS[section]
        chosen = value.get(tag) if isinstance(value, dict) else value
        allowed = (
            [part.strip(" '") for part in str(error["ctx"]["expected_tags"]).split(",")]
            if (kind == "union_tag_invalid")
            else _tags(section)
        )
        hint = suggest(str(chosen), allowed)
        return f"{key}.{tag}={_short(chosen)}: unknown{hint or ';'} allowed: {', '.join(allowed)}"
    if kind == "value_error":
        text = str(error["ctx"]["error"])
        if isinstance(value, (dict, Settings)):
            return text if not key or text.startswith(f"{key}.") else f"{key}: {text}"
        return f"{key}={_short(value)}: {text}"
    if kind == "missing":
        return f"{key}: required, but not given"
    allowed_text = _allowed(field.annotation, field.metadata) if field else error["msg"]
    words = allowed_text.removeprefix("a list of ").split(", ")
    hint = suggest(str(value), words) if kind == "literal_error" else ""
    return f"{key}={_short(value)}: not allowed{hint or ';'} allowed: {allowed_text}"


def _locate(loc: tuple[int | str, ...]) -> tuple[str, type[Settings], FieldInfo | None]:
    """The dotted key of a pydantic location, the section it lies in, and its field if known."""
    owner: type[Settings] = Config
    field: FieldInfo | None = None
    key: list[str] = []
    for part in loc:
        choices = _models(field.annotation) if field else []
        if len(choices) > 1 and part in _tag_values(choices):
            owner = _tag_values(choices)[str(part)]
            field = None
            continue
        if len(choices) == 1:
            owner = choices[0]
        if isinstance(part, int):
            key[-1] += f"[{part}]"
            continue
        key.append(part)
        field = owner.model_fields.get(part)
    return ".".join(key), owner, field


def _models(annotation: Any) -> list[type[Settings]]:
    """The settings classes inside an annotation."""
    if isinstance(annotation, type) and issubclass(annotation, Settings):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models(part)]


def _tag_values(models: Sequence[type[Settings]]) -> dict[str, type[Settings]]:
    return {
        get_args(model.model_fields[tag].annotation)[0]: model
        for model in models
        for tag in TAGS.values()
        if tag in model.model_fields and get_origin(model.model_fields[tag].annotation) is Literal
    }


def _tags(section: str) -> list[str]:
    return list(_tag_values(_models(Config.model_fields[section].annotation)))


def _all_keys(model: type[Settings], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield prefix + name
        if name != "schedule":
            for section in _models(field.annotation):
                yield from _all_keys(section, f"{prefix}{name}.")


def _allowed(annotation: Any, metadata: Sequence[Any] = ()) -> str:
    """What a type admits, in words."""
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
    if _models(annotation):
        return f"a section with {', '.join(_models(annotation)[0].model_fields)}"
    notes = [inner for note in metadata for inner in getattr(note, "metadata", [note])]
    bounds = [
        f"{word} {getattr(note, name)}"
        for note in notes
        for name, word in (("ge", "at least"), ("gt", "above"), ("le", "at most"), ("lt", "below"))
        if hasattr(note, name)
    ]
    pattern = [f"like {note.pattern}" for note in notes if getattr(note, "pattern", None)]
    return " ".join([_TYPE_WORDS.get(annotation, str(annotation)), *bounds, *pattern])


def _short(value: Any) -> str:
    text = "null" if value is None else str(value)
    return text if len(text) <= 60 else text[:57] + "..."


# ---------------------------------------------------------------------------------- printing

_COMMENT_COLUMN = 34
_WIDTH = 100


def _render_section(settings: Settings, indent: int) -> Iterator[str]:
    import textwrap

    values = settings.model_dump(mode="json")
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        if isinstance(value, Settings):
            yield f"{'  ' * indent}{name}:"
            yield from _render_section(value, indent + 1)
            continue
        text = yaml.dump(
            values[name], Dumper=_Dumper, default_flow_style=True, width=10_000
        ).strip()
        line = f"{'  ' * indent}{name}: {text.removesuffix('...').strip()}"
        comment = textwrap.wrap(field.description or "", _WIDTH - _COMMENT_COLUMN - 2)
        for number, piece in enumerate(comment):
            start = line if number == 0 else ""
            yield f"{start:<{_COMMENT_COLUMN - 1}} # {piece}"
        if not comment:
            yield line
