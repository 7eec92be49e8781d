"""Mode coverage: what a planted collapse, strays and noise do to it."""

from __future__ import annotations

import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.errors import ConfigError
from remuda.metrics import evaluate_points
from remuda.metrics.coverage import mode_coverage

MODES = torch.tensor([(float(x), float(y)) for x in range(-4, 5, 2) for y in range(-4, 5, 2)])
SPREAD = 0.05


def points(of: torch.Tensor, each: int = 40, seed: int = 0) -> torch.Tensor:
    """`each` Gaussian points around every one of some modes, at half the true deviation."""
    rng = torch.Generator().manual_seed(seed)
    centres = of.repeat_interleave(each, 0)
    return centres + 0.5 * SPREAD * torch.randn(centres.shape, generator=rng)


def test_even_samples_of_all_modes_are_perfect() -> None:
    found = mode_coverage(points(MODES), MODES, SPREAD)
    assert (found.hit, found.covered, found.modes) == (25, 25, 25)
    assert found.quality == 1
    assert found.divergence == 0
    assert found.histogram == (40,) * 25


@pytest.mark.parametrize("kept", [24, 10, 1])
def test_a_planted_collapse_lowers_coverage(kept: int) -> None:
    found = mode_coverage(points(MODES[:kept]), MODES, SPREAD)
    assert (found.hit, found.covered) == (kept, kept)
    assert found.quality == 1
    assert found.divergence == pytest.approx(math.log(25 / kept))


def test_samples_between_the_modes_lower_only_the_quality() -> None:
    between = points(MODES[:10] + 1.0)
    found = mode_coverage(torch.cat((points(MODES), between)), MODES, SPREAD)
    assert found.quality == pytest.approx(1000 / 1400)
    assert (found.hit, found.covered, found.divergence) == (25, 25, 0)


def test_one_stray_hits_a_mode_but_does_not_cover_it() -> None:
    found = mode_coverage(torch.cat((points(MODES[:24]), MODES[24:])), MODES, SPREAD)
    assert (found.hit, found.covered) == (25, 24)


def test_the_border_of_a_mode_is_three_deviations() -> None:
    one = torch.zeros(1, 2)
    near, far = torch.tensor([[0.0, 0.2999]]), torch.tensor([[0.0, 0.3001]])
    assert mode_coverage(near, one, 0.1).hit == 1
    assert mode_coverage(far, one, 0.1).hit == 0


def test_samples_that_hit_nothing_do_not_look_even() -> None:
    for bad in (100.0, math.nan, math.inf):
        found = mode_coverage(torch.full((50, 2), bad), MODES, SPREAD)
        assert (found.hit, found.covered, found.quality) == (0, 0, 0)
        assert found.divergence == math.inf
        scores = evaluate_points(torch.full((50, 2), bad), MODES, SPREAD).to_json()
        assert json.loads(json.dumps(scores, allow_nan=False))["values"]["mode_kl"] is None


@settings(max_examples=25, deadline=None)
@given(counts=st.lists(st.integers(0, 30), min_size=2, max_size=8), seed=st.integers(0, 99))
def test_order_of_samples_and_modes_does_not_matter(counts: list[int], seed: int) -> None:
    modes = MODES[: len(counts)]
    repeats = torch.tensor([*counts[:-1], counts[-1] + 1])
    samples = modes.repeat_interleave(repeats, 0)
    rng = torch.Generator().manual_seed(seed)
    shuffled = samples[torch.randperm(len(samples), generator=rng)]
    order = torch.randperm(len(modes), generator=rng)
    found, other = (
        mode_coverage(samples, modes, SPREAD),
        mode_coverage(shuffled, modes[order], SPREAD),
    )
    assert found.histogram == tuple(repeats.tolist())
    assert sorted(found.histogram) == sorted(other.histogram)
    assert (found.hit, found.covered) == (other.hit, other.covered)
    assert other.divergence == pytest.approx(found.divergence)
    assert 0 <= found.divergence <= math.log(len(modes)) + 1e-12


def test_the_lines_say_all_figures() -> None:
    samples = torch.cat((MODES[:1].repeat(30, 1), MODES[1:2].repeat(10, 1), torch.ones(10, 2)))
    scores = evaluate_points(samples, MODES[:4], SPREAD)
    assert scores.lines() == [
        "scores of 50 samples against 4 known modes, within 3 standard deviations",
        "modes hit       2 of 4",
        "modes covered   2 of 4, at 0.25 of their share or more",
        "high quality    80.0%",
        f"histogram KL    {math.log(4) - 0.5623351446188083:.4f}",
        "mode histogram  30 10 0 0",
    ]
    kept = scores.to_json()
    assert (kept["modes"], kept["samples"], kept["mode_histogram"]) == (4, 50, [30, 10, 0, 0])
    assert kept["values"]["modes_covered"] == 2


@pytest.mark.parametrize(
    ("samples", "modes", "spread"),
    [
        (torch.zeros(3, 3), MODES, 0.1),
        (torch.zeros(3, 1, 2), MODES, 0.1),
        (torch.zeros(0, 2), MODES, 0.1),
        (torch.zeros(3, 2), MODES[:0], 0.1),
        (torch.zeros(3, 2), MODES, 0.0),
    ],
)
def test_what_cannot_be_covered_is_refused(
    samples: torch.Tensor, modes: torch.Tensor, spread: float
) -> None:
    with pytest.raises(ConfigError, match="allowed"):
        mode_coverage(samples, modes, spread)
