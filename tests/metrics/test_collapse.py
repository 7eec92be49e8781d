"""A planted collapse must show, and healthy samples must not raise a false alarm."""

import pytest
import torch

from remuda.metrics import (
    Features,
    SampleStatistics,
    classes_covered,
    near_duplicates,
    typical_distance,
)


def of_classes(*counts: int) -> SampleStatistics:
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    logits = torch.eye(len(counts))[labels]
    return SampleStatistics.of(Features(logits, logits))


def cloud(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, 16, generator=torch.Generator().manual_seed(seed))


def test_a_class_is_covered_from_a_quarter_of_its_real_share() -> None:
    real = of_classes(50, 25, 25)
    assert classes_covered(real, real) == 3
    assert classes_covered(real, of_classes(13, 7, 80)) == 3
    assert classes_covered(real, of_classes(12, 7, 81)) == 2
    assert classes_covered(real, of_classes(0, 0, 100)) == 1


def test_a_class_the_data_lack_is_never_covered() -> None:
    assert classes_covered(of_classes(5, 5, 0), of_classes(4, 4, 2)) == 2


def test_healthy_samples_hold_no_duplicates() -> None:
    assert near_duplicates(cloud(3000, 1), typical_distance(cloud(3000))) == 0


@pytest.mark.parametrize("noise", [0.0, 1e-3])
def test_planted_duplicates_show_in_their_share(noise: float) -> None:
    samples = cloud(1000, 1)
    samples[900:] = samples[0] + noise * cloud(100, 2)
    assert near_duplicates(samples, typical_distance(cloud(1000))) == pytest.approx(0.101)


def test_one_repeated_sample_is_all_duplicates() -> None:
    assert near_duplicates(cloud(1).expand(2500, 16), typical_distance(cloud(1000))) == 1


def test_a_lone_sample_has_no_neighbour() -> None:
    with pytest.raises(ValueError, match="neighbour"):
        typical_distance(cloud(1))


@pytest.mark.parametrize("shift", [0.0, 1e3, 1e25])
@pytest.mark.parametrize("copies", [0, 2, 40, 300])
def test_near_duplicates_are_those_that_all_distances_show(copies: int, shift: float) -> None:
    samples = cloud(300) + shift
    samples[:copies] = samples[-1] + 0.02 * cloud(300, 5)[:copies]
    typical = typical_distance(cloud(1000))
    apart = torch.cdist(
        samples.double(), samples.double(), compute_mode="donot_use_mm_for_euclid_dist"
    )
    nearest = apart.fill_diagonal_(torch.inf).amin(1)
    shown = (nearest < 0.1 * typical).double().mean().item()
    assert near_duplicates(samples, typical) == shown
    assert copies == 0 or shown > 0
