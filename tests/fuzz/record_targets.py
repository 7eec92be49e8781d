"""The readers of settings, records, ensembles and run folders."""

from __future__ import annotations

from tests.fuzz.target import Target

TARGETS: list[Target] = []
