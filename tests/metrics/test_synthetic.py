"""Train on synthetic, test on real: what is trained on, and what it is worth."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from remuda.metrics import Items, Material, Scores, evaluate_items
from remuda.metrics.synthetic import Classifier

CENTRES = torch.tensor([[-0.6, -0.6], [0.6, -0.6], [0.0, 0.6]])
Draw = Callable[[int, int], tuple[Tensor, Tensor]]


def blobs(count: int, seed: int, classes: int = 3) -> tuple[Tensor, Tensor]:
    """Points around as many centres as there are classes."""
    labels = torch.arange(count) % classes
    noise = torch.randn(count, 2, generator=torch.Generator().manual_seed(seed))
    return CENTRES[labels] + 0.1 * noise, labels


def scored(draw: Draw, train: int = 300, items: tuple[Tensor, Tensor] | None = None) -> Scores:
    samples, _ = draw(0, train)
    material = Material(
        samples,
        lambda: Items(*(items or blobs(train, 1)), "training points"),
        lambda: Items(*blobs(150, 2), "held-out points"),
        draw,
        "labelled by hand",
        ("left", "right", "top"),
    )
    return evaluate_items(material, ["tstr"])


@pytest.fixture(autouse=True)
def _few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remuda.metrics.synthetic.STEPS", 100)


def test_samples_like_the_data_teach_as_much() -> None:
    scores = scored(lambda number, count: blobs(count, 3 + number))
    assert scores.values["tstr"] == scores.values["trtr"] == 1
    assert scores.values["tstr_samples"] == scores.values["trtr_items"] == 300
    assert scores.lines()[1:] == [
        "TSTR            100.0% of 150 held-out points are recognised after training on 300 "
        "samples, labelled by hand",
        "                (100 of each class)",
        "TRTR            100.0% after training on 300 training points",
    ]


def test_wrong_labels_teach_nothing() -> None:
    def swapped(number: int, count: int) -> tuple[Tensor, Tensor]:
        items, labels = blobs(count, number)
        return items, (labels + 1) % 3

    values = scored(swapped).values
    assert (values["tstr"], values["trtr"]) == (0, 1)


def test_a_class_that_samples_lack_is_not_learnt() -> None:
    drawn = []

    def two(number: int, count: int) -> tuple[Tensor, Tensor]:
        drawn.append(number)
        return blobs(count, number, classes=2)

    scores = scored(two)
    assert scores.values["tstr"] == pytest.approx(2 / 3, abs=0.02)
    assert scores.values["trtr"] == 1
    assert scores.values["tstr_samples"] == 200
    assert scores.notes["tstr_found"] == "100 of each class, but only 0 of top in 900 drawn"
    assert drawn == [0, 0, 1, 2]  # once by the test itself, then three times as many as needed


def test_more_samples_are_drawn_where_a_class_is_rare() -> None:
    def rare(number: int, count: int) -> tuple[Tensor, Tensor]:
        items, labels = blobs(count, number)
        kept = (labels < 2) | (torch.arange(count) % 2 == 0)
        return items[kept], labels[kept]

    scores = scored(rare)
    assert scores.values["tstr_samples"] == 300
    assert scores.notes["tstr_found"] == "100 of each class"


def test_real_items_of_rare_classes_are_all_used() -> None:
    items, labels = blobs(300, 1)
    kept = (labels < 2) | (torch.arange(300) < 30)
    scores = scored(lambda number, count: blobs(count, number), 300, (items[kept], labels[kept]))
    assert scores.values["trtr_items"] == scores.values["tstr_samples"] == 210
    assert scores.notes["tstr_found"] == "up to 100 of each class"


@pytest.mark.parametrize("shape", [(5,), (1, 1, 1), (1, 4, 7), (3, 32, 32), (3, 40, 65)])
def test_the_classifier_takes_items_of_any_shape(shape: tuple[int, ...]) -> None:
    items = torch.rand(20, *shape, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(20) % 2
    items[labels == 1] -= 1
    classifier = Classifier(shape, 2, seed=0)
    classifier.train(items, labels, steps=60, after=lambda: None)
    assert classifier.accuracy(items, labels) == 1


def test_a_seed_is_a_classifier_and_no_other_stream_is_touched() -> None:
    items, labels = blobs(60, 0)
    before, found = torch.get_rng_state(), []
    for seed in (0, 0, 1):
        classifier = Classifier((2,), 3, seed)
        classifier.train(items, labels, steps=5, after=lambda: None)
        found.append([weights.clone() for weights in classifier.parameters()])
    assert torch.equal(before, torch.get_rng_state())
    first, again, other = found
    assert all(map(torch.equal, first, again))
    assert not any(map(torch.equal, first, other))
