"""YAML as configurations are written in it, read and written by the same rules."""

from __future__ import annotations

import re
from typing import Any

import yaml


class _Loader(yaml.SafeLoader):
    """Plain YAML with today's numbers: 1e-3 is a number, and 0x3 is a (bad) grid, not hex 3.

    No setting is a date, so a word that looks like one is text.
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


def parse(text: str) -> Any:
    """The value of a YAML text; raises yaml.YAMLError."""
    try:
        return _Loader(text).get_single_data()
    except RecursionError:
        raise yaml.YAMLError("nested too deeply") from None


def dump_line(value: Any) -> str:
    """A value on one line."""
    text = yaml.dump(value, Dumper=_Dumper, default_flow_style=True, width=10_000)
    return text.strip().removesuffix("...").strip()
