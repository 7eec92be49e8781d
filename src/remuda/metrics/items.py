"""Real items as metrics are given them: some are asked for at a time, never all at once."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor


class RealItems(Protocol):
    """Items in [-1, 1] by index: a tensor, or bytes that become floats when they are asked for."""

    @property
    def shape(self) -> torch.Size: ...

    def __len__(self) -> int: ...

    def __getitem__(self, chosen: slice | Tensor, /) -> Tensor: ...
