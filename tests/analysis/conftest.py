from __future__ import annotations

from tests.populations import alone, images, one_torch_thread, runs, swapped

__all__ = ["alone", "images", "one_torch_thread", "runs", "swapped"]
