"""How items in [-1, 1], as networks see them, relate to the data's own units."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Scaling:
    """raw = scaled * scale + offset, with one pair for all pixels or one per coordinate."""

    scale: tuple[float, ...]
    offset: tuple[float, ...]

    def to_raw(self, items: Tensor) -> Tensor:
        """Items (N, C, H, W) or points (N, D) from [-1, 1] to the data's own units."""
        return items * _column(self.scale, items) + _column(self.offset, items)

    def to_scaled(self, raw: Tensor) -> Tensor:
        """Items in the data's own units, back to what the networks see."""
        return (raw - _column(self.offset, raw)) / _column(self.scale, raw)


def _column(values: tuple[float, ...], items: Tensor) -> Tensor:
    """The values along the second dimension of the items."""
    return torch.tensor(values).reshape(-1, *[1] * (items.ndim - 2))


PIXELS = Scaling((0.5,), (0.5,))  # raw pixels are in [0, 1]
