"""Text of others as pages and messages may show it; `errors.visible` is for all text."""

from __future__ import annotations

import re

from remuda.errors import visible

_LONGEST_VALUE = 60  # characters of a value that a message shows
# What Markdown or HTML would take for more than text: tags, links, images, columns of tables.
_MARKED = re.compile(r"<(?=[A-Za-z/!?])|\](?=[(\[:])|\|")


def plain_markdown(text: str) -> str:
    """A line of Markdown in which text of others makes no tag, link or column."""
    return _MARKED.sub(lambda found: "&lt;" if found[0] == "<" else f"\\{found[0]}", visible(text))


def value_text(value: object) -> str:
    """A bad value as messages show it: as Python writes it, and not too long."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number of thousands of digits; a list in a list in …
        return "a value too long to show"
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."
