"""DiffAugment: each change is what it says, differs by image, and lets gradients through."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

from remuda.data import dataset_from_array
from remuda.errors import ConfigError
from remuda.gan.augment import AUGMENTATIONS, augmented
from tests.tiny import gan_tensors, same, tiny_cell, tiny_config


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def images(count: int = 40, channels: int = 3, side: int = 16) -> torch.Tensor:
    return torch.rand(count, channels, side, side, generator=stream(1)) * 2 - 1


@pytest.mark.parametrize("kind", AUGMENTATIONS)
def test_a_change_keeps_the_shape_is_repeatable_and_differs_by_image(kind: str) -> None:
    same = images(1).expand(40, -1, -1, -1)
    once, again = (augmented(same, [kind], stream()) for _ in range(2))
    assert once.shape == same.shape
    assert torch.equal(once, again)
    assert len(torch.unique(once.flatten(1), dim=0)) > 10
    assert not torch.equal(once, augmented(same, [kind], stream(5)))


@pytest.mark.parametrize("kind", AUGMENTATIONS)
def test_gradients_are_exact(kind: str) -> None:
    small = images(3, 2, 4).double().requires_grad_()
    assert gradcheck(lambda x: augmented(x, [kind], stream()), small)


def test_nothing_asked_for_changes_nothing() -> None:
    assert augmented(images(), [], stream()) is not None
    assert torch.equal(augmented(images(), [], stream()), images())


def test_a_translation_moves_by_at_most_an_eighth_and_lets_grey_in() -> None:
    side, most = 16, 2
    original = images(60, 3, side)
    moved = augmented(original, ["translation"], stream())
    steps = set()
    for before, after in zip(original, moved, strict=True):
        found = [
            (down, across)
            for down in range(-most, most + 1)
            for across in range(-most, most + 1)
            if torch.equal(after, _shifted(before, down, across))
        ]
        assert len(found) == 1
        steps.update(found)
    assert {step[0] for step in steps} == {step[1] for step in steps} == set(range(-2, 3))


def _shifted(image: torch.Tensor, down: int, across: int) -> torch.Tensor:
    """The image moved over zeros."""
    side, most = image.shape[1], max(abs(down), abs(across))
    padded = torch.nn.functional.pad(image, (most,) * 4)
    top, left = most - down, most - across
    return padded[:, top : top + side, left : left + side]


def test_a_cutout_greys_one_rectangle_of_at_most_half_the_side() -> None:
    cut = augmented(images(200), ["cutout"], stream()) == 0
    assert (cut == cut[:, :1]).all()  # all channels alike
    rows, columns = cut[:, 0].any(2).sum(1), cut[:, 0].any(1).sum(1)
    assert torch.equal(rows * columns, cut[:, 0].sum((1, 2)))
    assert rows.max() == columns.max() == 8
    assert rows.min() >= 4


def test_colour_changes_are_affine_per_image_and_keep_what_is_equal_equal() -> None:
    grey = torch.linspace(-1, 1, 16).reshape(1, 1, 4, 4).expand(30, 3, -1, -1)
    changed = augmented(grey, ["colour"], stream())
    assert torch.allclose(changed, changed[:, :1].expand_as(changed), atol=1e-6)
    before, after = grey[:, 0].flatten(1), changed[:, 0].flatten(1)
    slope = (after[:, -1] - after[:, 0]) / (before[:, -1] - before[:, 0])
    assert slope.min() >= 0.5
    assert slope.max() <= 1.5
    line = after[:, :1] + slope[:, None] * (before - before[:, :1])
    assert torch.allclose(after, line, atol=1e-5)
    level = after.mean(1) - before.mean(1)
    assert level.abs().max() <= 0.5


def test_saturation_spreads_or_shrinks_colours_around_their_grey() -> None:
    one = torch.tensor([0.6, 0.0, -0.6]).reshape(1, 3, 1, 1).expand(50, 3, 4, 4)
    changed = augmented(one, ["colour"], stream())
    spread = (changed[:, 0] - changed[:, 2])[:, 0, 0]
    assert spread.min() < 0.4
    assert spread.max() > 1.5  # saturation up to 2, contrast up to 1.5


# ---------------------------------------------------------------------------- in training


def test_a_cell_trains_on_changed_images_the_same_way_each_time() -> None:
    found = []
    for kinds in ([], ["translation", "cutout", "colour"], ["translation", "cutout", "colour"]):
        training = {"augment": kinds, "batch_size": 6, "learning_rate": 0.01}
        cell = tiny_cell(tiny_config(training=training))
        cell.train(cell.gan)
        found.append(gan_tensors(cell.gan))
    assert same(found[1], found[2])
    assert not same(found[0], found[1])


def test_points_cannot_be_changed_like_images() -> None:
    points = dataset_from_array(np.random.default_rng(0).normal(size=(24, 2)), None)
    cell = tiny_cell(tiny_config(training={"augment": ["cutout"]}), points)
    with pytest.raises(ConfigError, match=r"training.augment=\['cutout'\]: .* allowed: \[\]"):
        cell.train(cell.gan)
