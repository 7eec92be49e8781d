"""A classifier of MNIST that nothing else in this repository may use, to judge results with.

Recipes, mixtures and cells are chosen by the classifier that comes with remuda, so what they gain
by that choice may lie in what this one classifier happens to see. A second one that took part in
no choice says how much of the gain is real. Trained by `scripts/train_second_classifier.py`.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from remuda.metrics import Extractor
from remuda.metrics.classifier import read_weights, tensors_digest

WEIGHTS = Path(__file__).with_name("second-classifier.safetensors")


class SecondNetwork(nn.Module):
    """After LeNet-5: few wide filters, averages instead of maxima, and a wide layer."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv2d(1, 16, 5), nn.GELU(), nn.AvgPool2d(2)),
            *(nn.Conv2d(16, 32, 5), nn.GELU(), nn.AvgPool2d(2)),
            *(nn.Flatten(), nn.Linear(32 * 4 * 4, 256), nn.GELU()),
        )
        self.head = nn.Sequential(nn.Dropout(0.5), nn.Linear(256, 10))
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # stub lacks it

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        features = self.body(images)
        return features, self.head(features)


def load_second_classifier(path: Path = WEIGHTS) -> Extractor:
    """The classifier in its file, read and checked."""
    network = SecondNetwork()
    card = read_weights(path, network)
    return Extractor(network, card, tensors_digest(network.state_dict())[:32])
