"""Samples that a cell draws a few at a time."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from remuda.gan import cell as cell_module
from tests.tiny import DCGAN, MLP, labelled, tiny_cell, tiny_config, tiny_dataset

GRAN = {"family": "gran", "latent": 4, "width": 2, "discriminator_width": 2, "steps": 2}


@pytest.mark.parametrize(
    "network", [MLP, DCGAN, GRAN, {**DCGAN, "condition": "projection", "classes": 4}]
)
def test_a_few_at_a_time_are_the_samples_of_one_draw(
    network: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = labelled(tiny_dataset(side=16))
    cell = tiny_cell(tiny_config(network=network), dataset)
    found = cell.images(23, "test")
    for size in (1000, 10):
        monkeypatch.setattr(cell_module, "DRAWN_AT_A_TIME", size)
        again = cell.images(23, "test")
        assert again.shape == found.shape
        assert torch.allclose(again, found, atol=1e-5)
