"""The readers of data sets."""

from __future__ import annotations

from tests.fuzz.target import Target

TARGETS: list[Target] = []
