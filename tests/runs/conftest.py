from __future__ import annotations

from tests.populations import alone, runs, swapped

__all__ = ["alone", "runs", "swapped"]
