"""A configuration as commented YAML."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from remuda.config.base import Settings
from remuda.config.root import Config
from remuda.config.yaml_text import dump_line

_COMMENT_COLUMN = 34
_WIDTH = 100


def render(config: Config) -> str:
    """The configuration as YAML, every key with its description; loads back to an equal Config."""
    return "\n".join(_section(config, indent=0)) + "\n"


def _section(settings: Settings, indent: int) -> Iterator[str]:
    values = settings.model_dump(mode="json")
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        if isinstance(value, Settings):
            yield f"{'  ' * indent}{name}:"
            yield from _section(value, indent + 1)
            continue
        line = f"{'  ' * indent}{name}: {dump_line(values[name])}"
        comment = textwrap.wrap(field.description or "", _WIDTH - _COMMENT_COLUMN - 2)
        for number, piece in enumerate(comment):
            start = line if number == 0 else ""
            yield f"{start:<{_COMMENT_COLUMN - 1}} # {piece}"
        if not comment:
            yield line
