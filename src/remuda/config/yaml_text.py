"""YAML as configurations are written in it, read and written by the same rules."""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any

import yaml
from yaml.composer import ComposerError

LARGEST = 2**20  # bytes of a configuration: seconds to read
_DEEPEST = 30  # lists and sections in one another


class _Loader(yaml.SafeLoader):
    """Plain YAML with today's numbers: 1e-3 is a number, and 0x3 is a (bad) grid, not hex 3.

    No setting is a date, so a word that looks like one is text. There are no aliases, with which a
    few lines make billions of values, and neither tags nor keys that are there twice.
    """

    _depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        for name, what in (("anchor", "anchors and aliases"), ("tag", "tags")):
            found = getattr(event, name, None)
            if found is not None:
                raise _refusal(f"{what} are not allowed ({found[:60]})", event.start_mark)
        if self._depth > _DEEPEST:
            raise _refusal(f"nested more than {_DEEPEST} times", event.start_mark)
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        keys = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == "tag:yaml.org,2002:merge":
                raise _refusal("a key is not plain text", key.start_mark)
            if key.value in keys:
                raise _refusal(f"the key {key.value[:60]} is there twice", key.start_mark)
            keys.add(key.value)
        found: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return found


def _refusal(problem: str, mark: Any) -> yaml.YAMLError:
    return ComposerError(None, None, problem, mark)


_Loader.yaml_implicit_resolvers = {
    first: [
        (tag, pattern)
        for tag, pattern in resolvers
        if not tag.endswith((":int", ":float", ":timestamp"))
    ]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
# Longer ones are read as floats, which have no limit of digits; no setting is so large.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(r"[-+]?(0|[1-9]\d{0,99})$"), list("-+0123456789")
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
    if len(text) > LARGEST:
        raise yaml.YAMLError(f"{len(text):,} characters; allowed: at most {LARGEST:,}")
    return _Loader(text).get_single_data()


def dump_line(value: Any) -> str:
    """A value on one line."""
    text = yaml.dump(value, Dumper=_Dumper, default_flow_style=True, width=10_000)
    return text.strip().removesuffix("...").strip()
