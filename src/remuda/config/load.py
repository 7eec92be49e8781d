"""From a preset or a YAML file and `key=value` overrides to a valid Config, or a helpful error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources
from os import fstat
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from remuda.config.base import Variant
from remuda.config.explain import explain, short, suggest
from remuda.config.root import Config
from remuda.config.yaml_text import LARGEST, parse
from remuda.errors import ConfigError
from remuda.files import open_regular

_GIVES = "# gives "
DEFAULT_PRESET = "quickstart"

# The sections that come in several kinds. Choosing another kind replaces the section.
VARIANTS: dict[str, type[Variant]] = {
    name: field.annotation
    for name, field in Config.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, Variant)
}
_TAGS = {base.tag for base in VARIANTS.values()}
# What `section=value` means, so that `grid=3x3` and `data=mnist` read as people say them.
SHORTHANDS = {
    "grid": "shape",
    "data": "source",
    **{section: base.tag for section, base in VARIANTS.items()},
}


def load_config(source: str | None = None, overrides: Sequence[str] = ()) -> Config:
    """The configuration of a preset name or YAML file, with `key=value` overrides applied."""
    # Overrides are merged with one another first, so that method=independent drops the base's
    # section but none of the overrides, whatever their order.
    layer: dict[str, Any] = {}
    for override in overrides:
        layer = _merge(layer, _parse_override(override))
    return validate(_merge(_tagged(_read_source(source or DEFAULT_PRESET)), layer))


def read_config(path: Path) -> Config:
    """The configuration in a run folder, where it is a file and no link."""
    return validate(_read_file(path, follow=False))


def validate(values: Mapping[str, Any]) -> Config:
    """A Config of plain values, or a ConfigError with one line per problem."""
    values = _tagged(_expand(values))
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise ConfigError(*explain(error, values)) from None


def preset_names() -> list[str]:
    folder = resources.files("remuda.config") / "presets"
    return sorted(
        entry.name.removesuffix(".yaml")
        for entry in folder.iterdir()
        if entry.name.endswith(".yaml")
    )


def preset_summary(name: str) -> str:
    """What a preset is for, in one line: the comment at its top."""
    return _preset_text(name).splitlines()[0].lstrip("# ")


def preset_expectation(name: str) -> str:
    """What a preset gave where it was measured: its second comment, if it is one; else empty."""
    second = _preset_text(name).splitlines()[1]
    return second.removeprefix(_GIVES) if second.startswith(_GIVES) else ""


def _preset_text(name: str) -> str:
    return (resources.files("remuda.config") / "presets" / f"{name}.yaml").read_text("utf-8")


def _read_source(source: str) -> dict[str, Any]:
    if source in preset_names():
        return _based(_parse_yaml(_preset_text(source), source), source)
    path = Path(source)
    try:
        found = path.is_file()
    except OSError:  # a name that is too long, a folder without permission
        found = False
    if not found:
        names = preset_names()
        hint = suggest(source, names) or ";"
        raise ConfigError(
            f"{source}: neither a preset nor a file{hint} presets: {', '.join(names)}"
        )
    return _read_file(path, follow=True)


def _read_file(path: Path, *, follow: bool) -> dict[str, Any]:
    try:
        with open_regular(path, follow=follow) as file:
            size = fstat(file.fileno()).st_size
            if size > LARGEST:
                raise ConfigError(
                    f"{path}: {size:,} bytes; allowed: a configuration of at most {LARGEST:,}"
                )
            text = file.read(LARGEST).decode("utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: cannot be read as text: {error}") from None
    return _based(_parse_yaml(text, str(path)), str(path))


def _based(values: dict[str, Any], source: str) -> dict[str, Any]:
    """Values merged over those of the preset they name as their base, if they name one."""
    base = values.pop("preset", None)
    if base is None:
        return _expand(values)
    names = preset_names()
    if base not in names:
        hint = suggest(str(base), names) or ";"
        raise ConfigError(
            f"preset={short(base)}: unknown in {source}{hint} allowed: {', '.join(names)}"
        )
    return _merge(_read_source(base), values)


def _parse_yaml(text: str, source: str) -> dict[str, Any]:
    try:
        values = parse(text)
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
        value = parse(text) if text.strip() else ""
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
    """Sections that leave out their kind are given the default kind."""
    tagged = dict(values)
    for section, base in VARIANTS.items():
        given = values.get(section)
        if isinstance(given, dict) and base.tag not in given:
            default = Config.model_fields[section].get_default(call_default_factory=True)
            tagged[section] = {base.tag: getattr(default, base.tag), **given}
    return tagged


def _merge(base: Mapping[str, Any], layer: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in _expand(layer).items():
        old = merged.get(key)
        if not (isinstance(old, dict) and isinstance(value, dict)):
            merged[key] = value
            continue
        merged[key] = _merge_sections(old, value)
    return merged


def _merge_sections(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The old section with the new values, at any depth; another kind of section begins anew."""
    if any(tag in old and tag in new and old[tag] != new[tag] for tag in _TAGS):
        return dict(new)
    return {
        **old,
        **{
            key: _merge_sections(old[key], value)
            if isinstance(value, dict) and isinstance(old.get(key), dict)
            else value
            for key, value in new.items()
        },
    }
