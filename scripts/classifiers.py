"""What the scripts that train classifiers share."""

from __future__ import annotations

import torch
from torch import nn

from remuda.config import DataSettings
from remuda.data import load_dataset


@torch.no_grad()
def accuracy_of(network: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    """Share of images whose largest logit is the label's."""
    guesses = torch.cat([network(part)[1].argmax(1) for part in torch.split(images, 500)])
    return (guesses == labels).double().mean().item()


def labelled(source: str, folder: str, split: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The images and labels of a named data set."""
    settings = DataSettings.model_validate({"source": source, "dir": folder, "split": split})
    data = load_dataset(settings)
    assert data.labels is not None
    return data.items, data.labels
