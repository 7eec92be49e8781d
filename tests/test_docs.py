"""The documentation names files that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]
# A changelog also names what is gone, and CONTRIBUTING shows files one might add.
NAMES = re.compile(r"`(?:python )?((?:[\w.-]+/)+[\w.-]+\.(?:py|md|yaml|toml|txt))\b")
LINKS = re.compile(r"\]\((?!https?:)([^)#\s]+)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_exist(page: Path) -> None:
    text = page.read_text()
    missing = [link for link in LINKS.findall(text) if not (page.parent / link).exists()]
    if page.name not in ("CHANGELOG.md", "CONTRIBUTING.md"):
        places = (ROOT, ROOT / "src" / "remuda", ROOT / "tests", page.parent)
        missing += [
            name
            for name in NAMES.findall(text)
            if not any((place / name).exists() for place in places)
        ]
    assert missing == []
