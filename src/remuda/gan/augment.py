"""DiffAugment (Zhao et al. 2020): the same random changes for real and fake images.

A discriminator that sees a few hundred images memorises them. Changing what it sees of both kinds,
in differentiable steps so that gradients reach the generator, prevents that without teaching the
generator the changes. Images are (n, channels, height, width) in [-1, 1].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

SHIFT = 1 / 8  # of a side, at most
CUT = 1 / 2  # of a side


def augmented(images: Tensor, kinds: Sequence[str], rng: torch.Generator) -> Tensor:
    """The images, each changed by its own draw of every kind of change."""
    for kind in kinds:
        images = AUGMENTATIONS[kind](images, rng)
    return images


def _translation(images: Tensor, rng: torch.Generator) -> Tensor:
    """Moved by up to an eighth either way; the uncovered edge is grey."""
    count, channels, height, width = images.shape
    down, across = round(height * SHIFT), round(width * SHIFT)
    padded = pad(images, (across, across, down, down))
    top = torch.randint(0, 2 * down + 1, (count, 1, 1, 1), generator=rng)
    left = torch.randint(0, 2 * across + 1, (count, 1, 1, 1), generator=rng)
    rows = (top + torch.arange(height)[:, None]).to(images.device)
    columns = (left + torch.arange(width)).to(images.device)
    moved = padded.gather(2, rows.expand(-1, channels, -1, padded.shape[3]))
    return moved.gather(3, columns.expand(-1, channels, height, -1))


def _cutout(images: Tensor, rng: torch.Generator) -> Tensor:
    """A grey square of half the side, centred anywhere."""
    count, _, height, width = images.shape
    tall, wide = round(height * CUT), round(width * CUT)
    centre_down = torch.randint(0, height + 1 - tall % 2, (count, 1, 1, 1), generator=rng)
    centre_across = torch.randint(0, width + 1 - wide % 2, (count, 1, 1, 1), generator=rng)
    rows, columns = torch.arange(height)[:, None], torch.arange(width)
    top, left = centre_down - tall // 2, centre_across - wide // 2
    cut = (rows >= top) & (rows < top + tall) & (columns >= left) & (columns < left + wide)
    return images.masked_fill(cut.to(images.device), 0.0)


def _colour(images: Tensor, rng: torch.Generator) -> Tensor:
    """Brightness, saturation (of colour images) and contrast."""

    def share() -> Tensor:
        return torch.rand(len(images), 1, 1, 1, generator=rng).to(images.device)

    images = images + (share() - 0.5)
    grey = images.mean(1, keepdim=True)
    images = grey + (images - grey) * (2 * share())
    level = images.mean((1, 2, 3), keepdim=True)
    return level + (images - level) * (share() + 0.5)


AUGMENTATIONS: dict[str, Callable[[Tensor, torch.Generator], Tensor]] = {
    "translation": _translation,
    "cutout": _cutout,
    "colour": _colour,
}
