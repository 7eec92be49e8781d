"""Random streams keyed by (seed, cell, round, purpose), never by process or rank.

Every draw in remuda comes from a stream made here, so a cell draws the same numbers wherever it
runs, whatever ran before it in the same process, and after any restart.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


def stream_key(seed: int, cell: int, round: int, purpose: str) -> int:
    """A 64-bit hash of its arguments."""
    text = f"remuda/1|{seed}|{cell}|{round}|{purpose}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def tensor_stream(seed: int, cell: int, round: int, purpose: str) -> torch.Generator:
    """For noise and weights: a torch generator on the CPU."""
    import torch

    # torch's CPU engine starts from the low 32 bits of the key alone: ten thousand streams have
    # about one chance in a hundred that two of them, anywhere in the run, draw the same numbers.
    key = stream_key(seed, cell, round, purpose)
    return torch.Generator().manual_seed(key)


def choice_stream(seed: int, cell: int, round: int, purpose: str) -> np.random.Generator:
    """For decisions (permutations, tournaments, mutations): a numpy generator."""
    return np.random.Generator(np.random.Philox(key=stream_key(seed, cell, round, purpose)))


@dataclass(frozen=True)
class Streams:
    """All streams of one cell in one round."""

    seed: int
    cell: int
    round: int

    def tensors(self, purpose: str) -> torch.Generator:
        return tensor_stream(self.seed, self.cell, self.round, purpose)

    def choices(self, purpose: str) -> np.random.Generator:
        return choice_stream(self.seed, self.cell, self.round, purpose)
