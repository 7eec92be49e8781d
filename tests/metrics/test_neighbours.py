"""KID and the shares of neighbourhoods, against plain loops and what must hold of known sets."""

import numpy as np
import pytest
import torch
from torchmetrics.image.kid import poly_mmd

from remuda.errors import ConfigError
from remuda.metrics import density_coverage, kernel_distance, precision_recall
from remuda.metrics.neighbours import _squared_mmd


def cloud(count: int, seed: int, shift: float = 0.0, size: int = 3) -> torch.Tensor:
    return torch.randn(count, size, generator=torch.Generator().manual_seed(seed)) + shift


def plain_radius(items: torch.Tensor, place: int, neighbours: int) -> float:
    distances = sorted(
        float((items[place] - other).norm()) for at, other in enumerate(items) if at != place
    )
    return distances[neighbours - 1]


def plain_share(inner: torch.Tensor, balls: torch.Tensor, neighbours: int) -> float:
    radii = [plain_radius(balls, place, neighbours) for place in range(len(balls))]
    met = [
        any(
            float((item - ball).norm()) <= radius for ball, radius in zip(balls, radii, strict=True)
        )
        for item in inner
    ]
    return sum(met) / len(met)


def test_precision_and_recall_equal_plain_loops() -> None:
    real, fake = cloud(25, 0), cloud(20, 1, 1.0)
    found = precision_recall(real, fake, 3)
    assert found.precision == pytest.approx(plain_share(fake, real, 3))
    assert found.recall == pytest.approx(plain_share(real, fake, 3))


def test_density_and_coverage_equal_plain_loops() -> None:
    real, fake = cloud(25, 0), cloud(20, 1, 1.0)
    radii = [plain_radius(real, place, 4) for place in range(25)]
    inside = [
        [float((item - ball).norm()) < radius for ball, radius in zip(real, radii, strict=True)]
        for item in fake
    ]
    found = density_coverage(real, fake, 4)
    assert found.density == pytest.approx(np.sum(inside) / (4 * 20))
    assert found.coverage == pytest.approx(np.any(inside, axis=0).mean())


def test_samples_of_the_same_law_have_density_one_and_the_known_coverage() -> None:
    # Naeem et al.: E coverage = 1 - Π (n - i)/(2n - i) over i = 1 … k, about 1 - 2⁻ᵏ.
    real, fake = cloud(3000, 0), cloud(3000, 1)
    found = density_coverage(real, fake, 5)
    assert found.density == pytest.approx(1, abs=0.05)
    assert found.coverage == pytest.approx(1 - 2**-5, abs=0.01)


def test_a_collapsed_generator_is_precise_and_recalls_nothing() -> None:
    real = cloud(400, 0)
    collapsed = real[:1] + 0.01 * cloud(400, 1)
    assert precision_recall(real, collapsed).precision > 0.9
    assert precision_recall(real, collapsed).recall < 0.05
    assert density_coverage(real, collapsed).coverage < 0.1
    far = cloud(400, 2, 50.0)
    assert precision_recall(real, far) == (0, 0)
    assert density_coverage(real, far) == (0, 0)


def test_blocks_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    real, fake = cloud(50, 0), cloud(70, 1, 0.5)
    whole = precision_recall(real, fake), density_coverage(real, fake)
    monkeypatch.setattr("remuda.metrics.neighbours._BLOCK", 7)
    assert (precision_recall(real, fake), density_coverage(real, fake)) == whole


def test_the_kernel_distance_is_the_usual_one() -> None:
    real, fake = cloud(40, 0, size=8).double(), cloud(40, 1, 0.5, size=8).double()
    assert _squared_mmd(real, fake) == pytest.approx(float(poly_mmd(real, fake)))


def test_the_kernel_distance_is_zero_on_average_for_the_same_law_and_grows() -> None:
    rng = np.random.default_rng(0)
    same = kernel_distance(cloud(500, 0), cloud(500, 1), rng, size=100)
    near = kernel_distance(cloud(500, 0), cloud(500, 1, 0.5), rng, size=100)
    far = kernel_distance(cloud(500, 0), cloud(500, 1, 1.0), rng, size=100)
    assert abs(same.mean) < 0.05 < near.mean < far.mean
    assert same.deviation > 0


def test_too_few_items_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"KID of 1 samples; allowed: at least 2"):
        kernel_distance(cloud(1, 0), cloud(5, 0), np.random.default_rng(0))
    with pytest.raises(ConfigError, match="3 samples do not have 3 neighbours"):
        precision_recall(cloud(3, 0), cloud(9, 0))
    with pytest.raises(ConfigError, match="allowed: at least 6 samples"):
        density_coverage(cloud(9, 0), cloud(5, 0))
