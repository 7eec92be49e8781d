"""Extractors made for the data of a run: labels and random features."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load, save
from scipy.stats import spearmanr
from torch import Tensor
from torch.nn import functional

from remuda.config import DataSettings
from remuda.data import load_dataset
from remuda.errors import ConfigError, StoreError
from remuda.metrics import (
    AnyExtractor,
    OwnExtractor,
    Reference,
    SampleStatistics,
    evaluate,
    fid,
    load_extractor,
    random_features,
    read_own_extractor,
    train_on_labels,
    trainable,
)
from remuda.metrics.classifier import tensors_digest
from remuda.metrics.own_extractor import OwnCard

SHAPES = [(1, 28, 28), (3, 40, 70), (2, 3, 5), (4, 1, 1), (1,), (2,), (90,)]
ANY_METRIC = ["fid", "kid", "pr", "dc"]


def noise(count: int, *shape: int, seed: int = 0) -> Tensor:
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(seed)) * 2 - 1


def labelled(count: int, *shape: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Noise that is darker, alike or brighter, by label."""
    labels = torch.arange(count) % 3
    shift = (labels - 1).reshape(-1, *(1 for _ in shape)) * 0.6
    return (0.25 * noise(count, *shape, seed=seed) + shift), labels


def distance(extractor: AnyExtractor, real: Tensor, fake: Tensor) -> float:
    return fid(SampleStatistics.of(extractor(real)), SampleStatistics.of(extractor(fake)))


# ---------------------------------------------------------------------------- both kinds


@pytest.mark.parametrize("shape", SHAPES)
def test_random_features_score_items_of_any_shape(shape: tuple[int, ...]) -> None:
    items = noise(60, *shape)
    extractor = random_features(items)
    seen = extractor(items)
    assert seen.features.shape == (60, 64)
    assert seen.logits.shape == (60, 0)
    scores = evaluate(noise(60, *shape, seed=1), Reference(extractor, items), ANY_METRIC)
    assert all(torch.isfinite(torch.tensor(list(scores.values.values()))))
    assert scores.extractor.startswith("random (")
    with pytest.raises(ConfigError, match=r"^is: needs an extractor with classes"):
        evaluate(items, Reference(extractor, items), ["is"])


@pytest.mark.parametrize("shape", SHAPES[2:])
def test_a_classifier_learns_labels_of_items_of_any_shape(shape: tuple[int, ...]) -> None:
    items, labels = labelled(240, *shape)
    extractor = train_on_labels(items, labels, 3)
    assert extractor.card.has_learnt
    assert extractor.card.held_out == 80
    fake, wanted = labelled(90, *shape, seed=1)
    metrics = [*ANY_METRIC, "is", "tvd", "accuracy", "fid_logits"]
    values = evaluate(fake, Reference(extractor, items), metrics, labels=wanted).values
    assert values["accuracy"] > 0.9
    assert values["tvd"] < 0.1
    assert values["classes_covered"] == 3
    assert 0 <= values["coverage"] <= 1


def test_features_have_a_unit_whatever_the_data() -> None:
    items, labels = labelled(300, 1, 8, 8)
    for extractor in (train_on_labels(items, labels, 3), random_features(items)):
        variances = extractor(items).features.double().var(0)
        assert variances.sum().item() == pytest.approx(64, rel=0.05)


def test_the_same_data_give_the_same_bytes_and_other_data_another_identity() -> None:
    items, labels = labelled(240, 1, 8, 8)
    others, _ = labelled(240, 1, 8, 8, seed=5)
    made = [train_on_labels(some, labels, 3) for some in (items, items, others)]
    made += [random_features(some) for some in (items, items, others)]
    for first, again, other in (made[:3], made[3:]):
        assert first.encoded() == again.encoded()
        assert first.identity == again.identity != other.identity


def test_items_of_another_shape_are_refused() -> None:
    extractor = random_features(noise(30, 2))
    for wrong in (noise(3, 3), noise(3, 1, 2, 2), noise(0, 2)):
        with pytest.raises(ConfigError, match=r"^extractor random got items of shape .*: Nx2"):
            extractor(wrong)


# ---------------------------------------------------------------------------- labels


def test_large_images_are_pooled_to_a_bound() -> None:
    items, labels = labelled(200, 1, 64, 64)
    extractor = train_on_labels(items, labels, 3)
    assert extractor.card.has_learnt
    # As the bound has 32 pixels a side, four equal pixels are one.
    coarse = functional.avg_pool2d(items, 2).repeat_interleave(2, 2).repeat_interleave(2, 3)
    torch.testing.assert_close(extractor(items).logits, extractor(coarse).logits)


def test_labels_without_meaning_are_not_learnt() -> None:
    items = noise(600, 2)
    labels = torch.randint(0, 4, (600,), generator=torch.Generator().manual_seed(1))
    assert not train_on_labels(items, labels, 4).card.has_learnt


@pytest.mark.parametrize(
    ("accuracy", "largest", "held_out", "learnt"),
    [
        (0.97, 0.1, 1000, True),
        (0.25, 0.01, 1000, True),
        (0.91, 0.90, 10_000, False),  # hardly more than the largest class
        (0.92, 0.90, 10_000, True),
        (0.6, 0.5, 100, False),  # two standard deviations
        (0.6, 0.5, 1000, True),
    ],
)
def test_learning_is_more_than_the_largest_class(
    accuracy: float, largest: float, held_out: int, learnt: bool
) -> None:
    figures = {"accuracy": accuracy, "largest": largest, "held_out": held_out}
    card = OwnCard.model_validate({"kind": "labels", "shape": (2,), "classes": 2, **figures})
    assert card.has_learnt is learnt


def test_what_cannot_be_trained_is_said() -> None:
    assert trainable(1000, None) == "the data have no labels"
    assert trainable(1000, torch.zeros(1000, dtype=torch.int64)) == "all items have the same label"
    assert "too few" in trainable(60, torch.arange(60) % 2)
    assert trainable(1000, torch.arange(1000) % 2) == ""


# ---------------------------------------------------------------------------- what random means


def blurred(images: Tensor, sigma: float) -> Tensor:
    places = torch.arange(-4, 5).float()
    line = (-places.square() / (2 * sigma**2)).exp()
    window = torch.outer(line, line) / line.sum() ** 2
    padded = functional.pad(images, (4, 4, 4, 4), mode="reflect")
    return functional.conv2d(padded, window.reshape(1, 1, 9, 9))


def test_random_features_see_noise_blur_missing_classes_and_copies() -> None:
    data = load_dataset(DataSettings.model_validate({"source": "digits"}))
    assert data.labels is not None
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(0))
    real, fake = data.items[order[:500]], data.items[order[500:1000]]
    labels = data.labels[order[500:1000]]
    grain = torch.randn(fake.shape, generator=torch.Generator().manual_seed(1))
    worse = {
        "noise": [(fake + sigma * grain).clamp(-1, 1) for sigma in (0.1, 0.2, 0.4)],
        "blur": [blurred(fake, sigma) for sigma in (0.5, 1.0, 2.0)],
        "classes": [fake[labels >= least] for least in (1, 5, 8)],
        "copies": [fake[:some].repeat(500 // some, 1, 1, 1) for some in (100, 25, 5)],
    }
    own, trained = random_features(real), load_extractor("digits")
    best = distance(own, real, fake)
    found: list[tuple[float, float]] = []
    for kind, sets in worse.items():
        grown = [distance(own, real, one) for one in sets]
        assert [best, *grown] == sorted({best, *grown}), kind
        found += zip(grown, (distance(trained, real, one) for one in sets), strict=True)
    assert spearmanr(*zip(*found, strict=True)).statistic > 0.8


def test_random_features_of_points_see_missing_and_smeared_modes() -> None:
    rng = torch.Generator().manual_seed(0)
    centres = 0.25 * (torch.cartesian_prod(torch.arange(5), torch.arange(5)).float() - 2)
    modes = torch.arange(2000) % 25

    def drawn(spread: float) -> Tensor:
        return centres[modes] + spread * torch.randn(2000, 2, generator=rng)

    real, fake = drawn(0.01), drawn(0.01)
    extractor = random_features(real)
    # The middle mode changes neither mean nor spread much: only the waves see it.
    sets = [fake, fake[modes != 12], fake[modes % 5 != 2], fake[modes < 5]]
    grown = [distance(extractor, real, one) for one in sets]
    assert grown == sorted(set(grown))
    smeared = [distance(extractor, real, drawn(spread)) for spread in (0.01, 0.05, 0.12)]
    assert smeared == sorted(set(smeared))


# ---------------------------------------------------------------------------- files


def test_an_extractor_survives_its_file(tmp_path: Path) -> None:
    items, labels = labelled(240, 1, 8, 8)
    for extractor in (train_on_labels(items, labels, 3), random_features(items)):
        path = tmp_path / "e.safetensors"
        path.write_bytes(extractor.encoded())
        again = read_own_extractor(path, (1, 8, 8))
        assert (again.card, again.identity) == (extractor.card, extractor.identity)
        torch.testing.assert_close(again(items).features, extractor(items).features, rtol=0, atol=0)


def changed(extractor: OwnExtractor) -> dict[str, tuple[bytes, str]]:
    """Each kind of damage, with the words its message must hold."""
    good = extractor.encoded()
    flipped = bytearray(good)
    flipped[-5] ^= 1
    newer = good.replace(b'{\\"format\\": 1', b'{\\"format\\": 2', 1)
    assert newer != good
    return {
        "truncated": (good[: len(good) // 2], "not a readable extractor"),
        "tampered": (bytes(flipped), "checksum"),
        "undescribed": (save(load(good)), "description"),
        "newer": (newer, "format 2"),
        "other data": (random_features(noise(30, 3)).encoded(), "for 3 items, and the data are 2"),
        "larger than it is": (redescribed(extractor, kind="labels", classes=10**6), "does not fit"),
        "no classes": (redescribed(extractor, kind="labels"), "damaged description"),
        "no share": (redescribed(extractor, largest=-2.0), "damaged description"),
        "bfloat16": (
            redescribed(extractor, lambda tensor: tensor.bfloat16()),
            "not the weights of this extractor",
        ),
        "not finite": (
            redescribed(extractor, lambda tensor: tensor * float("inf")),
            "not finite",
        ),
    }


def redescribed(
    extractor: OwnExtractor, change: Callable[[Tensor], Tensor] = lambda tensor: tensor, **card: Any
) -> bytes:
    """Its file with other tensors or another card, and a checksum that fits them."""
    tensors = {name: change(tensor) for name, tensor in load(extractor.encoded()).items()}
    kinds = {tensor.dtype for tensor in tensors.values()}
    sha256 = tensors_digest(tensors) if kinds == {torch.float32} else ""
    about = {"card": {**extractor.card.model_dump(), **card}, "sha256": sha256}
    return save(tensors, {"remuda": json.dumps(about)})


DAMAGES = ["truncated", "tampered", "undescribed", "newer", "other data", "larger than it is"]


@pytest.mark.parametrize("damage", [*DAMAGES, "no classes", "no share", "bfloat16", "not finite"])
def test_a_damaged_file_is_named(damage: str, tmp_path: Path) -> None:
    content, words = changed(random_features(noise(30, 2)))[damage]
    path = tmp_path / "e.safetensors"
    path.write_bytes(content)
    with pytest.raises(StoreError, match=words) as error:
        read_own_extractor(path, (2,))
    assert str(path) in str(error.value)


def test_a_pipe_in_the_place_of_an_extractor_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "e.safetensors")
    with pytest.raises(StoreError, match=r"e\.safetensors: cannot be read: is not a regular file"):
        read_own_extractor(tmp_path / "e.safetensors", (2,))
