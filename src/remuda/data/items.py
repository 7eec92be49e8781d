"""The items of a data set as they lie in memory: pixels as bytes, converted when asked for."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import torch
from torch import Tensor

CHUNK = 1000  # items converted at a time where all are needed
_MOST_FLOATS = 2**22  # at a time where it does not matter how many: a few photographs


class StoredItems:
    """All items of a data set: (N, C, H, W) images or (N, D) points.

    Bytes stay bytes, which take a quarter of the memory of floats. Indexing converts: it gives what
    networks see, float32 in [-1, 1], with the same bits whichever items are asked for together.
    """

    def __init__(self, stored: Tensor) -> None:
        self.stored = stored  # uint8 pixels, or floats that are scaled already

    def __len__(self) -> int:
        return self.stored.shape[0]

    def __getitem__(self, index: int | slice | Tensor) -> Tensor:
        if isinstance(index, Tensor) and index.dtype == torch.int64 and index.ndim == 1:
            return _converted(self.stored.index_select(0, index))  # the fastest way to gather rows
        return _converted(self.stored[index])

    @property
    def shape(self) -> torch.Size:
        return self.stored.shape

    @property
    def nbytes(self) -> int:
        """What they take in memory."""
        return self.stored.nbytes

    def take(self, chosen: Tensor) -> StoredItems:
        """Copies of some items, stored as they are here."""
        return StoredItems(self.stored[chosen])

    def chunks(self) -> Iterator[Tensor]:
        """All items in their order, converted part by part."""
        return (self[start : start + CHUNK] for start in range(0, len(self), CHUNK))

    def add_to(self, digest: hashlib.blake2b) -> None:
        """Hash the items as networks see them, so that it does not matter how they are stored."""
        floats = self.stored[:1].numel() or 1
        step = min(CHUNK, max(1, _MOST_FLOATS // floats))
        for start in range(0, len(self), step):
            digest.update(self[start : start + step].numpy().data)


def _converted(items: Tensor) -> Tensor:
    if items.dtype != torch.uint8:
        return items
    # Division and subtraction round every value by itself: no bit depends on its neighbours.
    return items.to(torch.float32).div_(127.5).sub_(1)
