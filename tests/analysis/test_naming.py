from __future__ import annotations

from pathlib import Path

from remuda.analysis.naming import short_names


def test_names_are_as_short_as_they_can_be() -> None:
    assert short_names([Path("runs/a"), Path("runs/b")]) == ["a", "b"]
    assert short_names([Path("x/a"), Path("y/a")]) == ["x/a", "y/a"]
    assert short_names([Path("runs/a")]) == ["a"]
