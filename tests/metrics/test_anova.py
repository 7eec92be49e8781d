from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import f_oneway

from remuda.config import DataSettings
from remuda.data import load_dataset
from remuda.errors import DataError
from remuda.metrics import Anova, anova


def _plain(items: np.ndarray, labels: np.ndarray) -> list[float]:
    """The papers' statistic as papers.md writes it, pixel by pixel."""
    found = []
    for channel in range(items.shape[1]):
        pixels = items[:, channel].reshape(len(items), -1)
        groups = np.unique(labels)
        g, n = len(groups), len(items)
        means = [pixels[labels == group].mean() for group in groups]
        between = np.var(means) * (g - 1) * (n / g - 1)
        rest = pixels.var() * (n - 1) - between
        found.append((between / (g - 1)) / (rest / (n - g)))
    return found


def _of(items: np.ndarray, labels: np.ndarray) -> Anova:
    return anova(torch.from_numpy(items), torch.from_numpy(labels), "made")


@pytest.fixture
def images() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 90)
    items = rng.normal(0, 1, (90, 3, 5, 5)) + 0.3 * labels[:, None, None, None] * [
        [[1]],
        [[0]],
        [[2]],
    ]
    return items.astype(np.float32), labels


def test_both_statistics_equal_plain_computations(images: tuple[np.ndarray, np.ndarray]) -> None:
    items, labels = images
    found = _of(items, labels)
    assert (found.items, found.classes) == (90, 4)
    wanted = _plain(items.astype(np.float64), labels)
    for channel, (part, papers) in enumerate(zip(found.channels, wanted, strict=True)):
        means = items[:, channel].astype(np.float64).mean((1, 2))
        f, p = f_oneway(*(means[labels == group] for group in range(4)))
        explained = sum(
            (labels == group).sum() * (means[labels == group].mean() - means.mean()) ** 2
            for group in range(4)
        )
        assert part.papers == pytest.approx(papers, rel=1e-9)
        assert part.f == pytest.approx(f, rel=1e-9)
        assert part.p == pytest.approx(p, rel=1e-6)
        assert part.eta_squared == pytest.approx(explained / (means.var() * 90), rel=1e-9)


def test_the_scaling_of_the_pixels_changes_nothing(images: tuple[np.ndarray, np.ndarray]) -> None:
    items, labels = images
    here, there = _of(items, labels), _of(items.astype(np.float64) * 127.5 + 127.5, labels)
    for one, other in zip(here.channels, there.channels, strict=True):
        assert (one.papers, one.f) == pytest.approx((other.papers, other.f), rel=1e-6)


def test_a_class_without_items_is_no_group(images: tuple[np.ndarray, np.ndarray]) -> None:
    items, labels = images
    assert _of(items, labels * 2) == _of(items, labels)


def test_it_says_whether_labels_are_worth_a_gan_each(images: tuple[np.ndarray, np.ndarray]) -> None:
    items, labels = images
    assert "simpler distribution" in _of(items, labels).meaning
    noise = np.random.default_rng(1).normal(0, 1, (4000, 1, 2, 2))
    shuffled = np.arange(4000) % 4
    assert "no difference" in _of(noise, shuffled).meaning
    slight = noise + 0.1 * shuffled[:, None, None, None]
    assert "small part" in _of(slight, shuffled).meaning


def test_points_are_compared_by_coordinate() -> None:
    points = np.array([[0.0, 1.0], [0.1, 2.0], [5.0, 1.1], [5.1, 2.1]])
    first, second = _of(points, np.array([0, 0, 1, 1])).channels
    assert first.eta_squared > 0.99
    assert second.eta_squared < 0.05


@pytest.mark.parametrize(
    ("labels", "says"), [(None, "has no labels"), ([0, 0, 0], "3 items in 1 classes"),
                         ([0, 1, 2], "3 items in 3 classes")]
)  # fmt: skip
def test_what_cannot_be_compared_is_refused(labels: list[int] | None, says: str) -> None:
    given = None if labels is None else torch.tensor(labels)
    with pytest.raises(DataError, match=says):
        anova(torch.zeros(3, 1, 2, 2), given, "made")


@pytest.mark.slow
@pytest.mark.real_data
@pytest.mark.parametrize(
    ("source", "fixture", "papers", "f"),
    [
        ("mnist", "real_data", [38.78], [3497.9]),
        ("cifar10", "real_cifar10", [22.12, 103.20, 400.47], [92.2, 456.6, 1544.4]),
    ],
)
def test_the_published_figures_come_out(
    request: pytest.FixtureRequest, source: str, fixture: str, papers: list[float], f: list[float]
) -> None:
    folder = request.getfixturevalue(fixture)
    data = load_dataset(DataSettings(source=source, dir=str(folder)))
    found = anova(data.items, data.labels, data.name)
    assert [round(part.papers, 2) for part in found.channels] == papers
    assert [round(part.f, 1) for part in found.channels] == f
