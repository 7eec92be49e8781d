"""What the scores mean, on digits: real beats collapsed, and collapsed and noise are told apart."""

from pathlib import Path

import pytest
import torch

from remuda.config import DataSettings
from remuda.data import Dataset, load_dataset
from remuda.metrics import (
    Reference,
    SampleStatistics,
    classes_covered,
    evaluate,
    load_extractor,
    loss_of,
    near_duplicates,
    typical_distance,
)


def dataset(**settings: str) -> Dataset:
    return load_dataset(DataSettings.model_validate(settings))


@pytest.fixture(scope="module")
def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Embedded digits, shuffled so that each slice holds all classes."""
    data = dataset(source="digits")
    assert data.labels is not None
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(0))
    return data.items[order], data.labels[order]


@pytest.fixture(scope="module")
def sets(digits: tuple[torch.Tensor, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Images a good and several bad generators could have made."""
    images, labels = digits
    others, other_labels = images[1000:], labels[1000:]
    noise = torch.rand(500, 1, 28, 28, generator=torch.Generator().manual_seed(1)) * 2 - 1
    return {
        "real": others[:1000],
        "no zeros": others[other_labels != 0][:1000],
        "one class": others[other_labels == 3][:500],
        "one image": others[:1].expand(500, -1, -1, -1),
        "noise": noise,
    }


@pytest.fixture(scope="module")
def statistics(
    digits: tuple[torch.Tensor, torch.Tensor], sets: dict[str, torch.Tensor]
) -> dict[str, SampleStatistics]:
    extractor = load_extractor("digits")
    reference = {"reference": digits[0][:1000]}
    return {
        name: SampleStatistics.of(extractor(images)) for name, images in (reference | sets).items()
    }


@pytest.mark.parametrize("metric", ["fid", "fid_logits", "is", "tvd"])
def test_every_score_puts_real_before_poor_before_collapsed(
    metric: str, statistics: dict[str, SampleStatistics]
) -> None:
    loss = {
        name: loss_of(metric, statistics["reference"], statistics[name])
        for name in ("real", "no zeros", "one class", "one image", "noise")
    }
    assert loss["real"] < loss["no zeros"]
    for bad in ("one class", "one image", "noise"):
        assert loss["no zeros"] < loss[bad], bad


def test_a_lost_class_is_counted(statistics: dict[str, SampleStatistics]) -> None:
    reference = statistics["reference"]
    covered = {name: classes_covered(reference, made) for name, made in statistics.items()}
    assert covered["real"] == 10
    assert covered["no zeros"] == 9
    assert covered["one class"] == 1
    assert covered["one image"] == 1


def test_duplicates_are_found_among_digits(sets: dict[str, torch.Tensor]) -> None:
    extractor = load_extractor("digits")
    typical = typical_distance(extractor(sets["real"]).features)
    noise = torch.randn(500, 1, 28, 28, generator=torch.Generator().manual_seed(2))
    copies = sets["real"][:20].repeat(25, 1, 1, 1) + 0.01 * noise
    for healthy in ("real", "no zeros"):
        assert near_duplicates(extractor(sets[healthy]).features, typical) < 0.005
    assert near_duplicates(extractor(sets["one image"]).features, typical) == 1
    assert near_duplicates(extractor(copies).features, typical) > 0.99


def test_scaling_matters(
    digits: tuple[torch.Tensor, torch.Tensor], sets: dict[str, torch.Tensor]
) -> None:
    reference = Reference(load_extractor("digits"), digits[0][:1000])
    right = evaluate(sets["real"], reference)
    wrong = evaluate((sets["real"] + 1) / 2, reference)
    assert wrong.values["fid"] > 10 * right.values["fid"]


@pytest.mark.slow
@pytest.mark.real_data
@pytest.mark.usefixtures("real_data")
def test_accuracy_on_the_official_test_images() -> None:
    data = dataset(source="mnist", split="test")
    assert len(data) == 10_000
    assert data.labels is not None
    guesses = load_extractor("digits")(data.items[:]).logits.argmax(1)
    assert (guesses == data.labels).double().mean().item() >= 0.99


@pytest.mark.slow
@pytest.mark.real_data
def test_accuracy_of_the_cifar_classifier_on_the_official_test_images(real_cifar10: Path) -> None:
    data = dataset(source="cifar10", split="test", dir=str(real_cifar10))
    assert data.labels is not None
    guesses = load_extractor("cifar")(data.items[:]).logits.argmax(1)
    assert (guesses == data.labels).double().mean().item() == pytest.approx(0.8545, abs=0.002)


@pytest.mark.slow
@pytest.mark.real_data
@pytest.mark.usefixtures("real_data")
def test_figures_of_real_train_against_test_images() -> None:
    real = dataset(source="mnist", split="train").items
    scores = evaluate(
        dataset(source="mnist", split="test").items[:], Reference(load_extractor("digits"), real)
    )
    # The figures in scripts/train_digits_classifier.py; CPUs differ in the last digits.
    assert scores.values["fid"] == pytest.approx(0.62, abs=0.05)
    assert scores.values["fid_logits"] == pytest.approx(0.15, abs=0.05)
    assert scores.values["is"] > 9.5
    assert scores.values["tvd"] < 0.01
