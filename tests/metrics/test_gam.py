"""GAM and GAM-II on matrices made by hand, and what must never change their scores."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from remuda.errors import ConfigError
from remuda.metrics.gam import (
    EXCLUSIONS,
    Contender,
    best,
    duel,
    gam2,
    helps,
    may_judge,
    share_called_real,
)

# Two GANs trained alone (run 0), and two that swapped discriminators (run 1).
ALONE = [Contender(0, f"a/{cell}", frozenset({f"a/{cell}"})) for cell in (0, 1)]
SWAPPED = [Contender(1, f"b/{cell}", frozenset({"b/0", "b/1"})) for cell in (0, 1)]
SHARES = torch.tensor(  # row: discriminator, column: generator
    [
        [0.9, 0.1, 0.5, 0.7],
        [0.2, 0.9, 0.4, 0.8],
        [0.3, 0.2, 0.9, 0.9],
        [0.1, 0.4, 0.9, 0.9],
    ]
)


def test_a_generator_is_judged_by_those_it_never_met() -> None:
    allowed = may_judge([*ALONE, *SWAPPED], [*ALONE, *SWAPPED], "seen")
    assert allowed.tolist() == [
        [False, True, True, True],
        [True, False, True, True],
        [True, True, False, False],
        [True, True, False, False],
    ]
    scores = gam2(SHARES, allowed)
    assert [one.judges for one in scores] == [3, 3, 2, 2]
    assert [one.average for one in scores] == pytest.approx([0.2, 0.7 / 3, 0.45, 0.75])
    assert [one.worst for one in scores] == pytest.approx([0.1, 0.1, 0.4, 0.7])
    assert best(scores) == 3


def test_blocks_keep_the_whole_run_out() -> None:
    scores = gam2(SHARES, may_judge([*ALONE, *SWAPPED], [*ALONE, *SWAPPED], "block"))
    assert [one.judges for one in scores] == [2, 2, 2, 2]
    assert [one.average for one in scores] == pytest.approx([0.2, 0.3, 0.45, 0.75])
    assert [one.worst for one in scores] == pytest.approx([0.1, 0.2, 0.4, 0.7])


def test_without_a_judge_there_is_no_score() -> None:
    for exclusion in EXCLUSIONS:
        scores = gam2(SHARES[2:, 2:], may_judge(SWAPPED, SWAPPED, exclusion))
        assert all(math.isnan(one.average) and math.isnan(one.worst) for one in scores)
        assert [one.judges for one in scores] == [0, 0]
        assert best(scores) is None


def test_a_share_of_nothing_is_a_score() -> None:
    """A judge that is never fooled gives 0; only the lack of judges gives NaN."""
    scores = gam2(torch.zeros(4, 4), may_judge([*ALONE, *SWAPPED], [*ALONE, *SWAPPED], "seen"))
    assert [one.average for one in scores] == [0, 0, 0, 0]
    assert best(scores) == 0


@given(
    order=st.permutations(range(4)),
    values=st.lists(st.floats(0, 1), min_size=16, max_size=16),
    exclusion=st.sampled_from(EXCLUSIONS),
)
def test_the_order_of_contenders_does_not_matter(
    order: list[int], values: list[float], exclusion: str
) -> None:
    contenders = [*ALONE, *SWAPPED]
    shares = torch.tensor(values, dtype=torch.float64).reshape(4, 4)
    found = gam2(shares, may_judge(contenders, contenders, exclusion))  # type: ignore[arg-type]
    shuffled = [contenders[place] for place in order]
    other = gam2(shares[order][:, order], may_judge(shuffled, shuffled, exclusion))  # type: ignore[arg-type]
    for place, one in zip(order, other, strict=True):
        assert one.judges == found[place].judges
        assert one.worst == found[place].worst
        assert one.average == pytest.approx(found[place].average)


def test_an_unknown_exclusion_is_refused() -> None:
    with pytest.raises(ConfigError, match="allowed: seen, block"):
        may_judge(ALONE, ALONE, "blocks")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("single", "population", "says"),
    [
        ([0.3, 0.4], [0.41, 0.5], "strongly helps"),
        ([0.3, 0.4], [0.1, 0.5], "helps"),
        ([0.3, 0.4], [0.4, 0.5], "helps"),  # the worst only equals the best single one
        ([0.3, 0.4], [0.1, 0.4], "does not help"),
        ([0.3], [math.nan, 0.5], "unknown"),
        ([math.nan], [0.5], "unknown"),
        ([], [0.5], "unknown"),
    ],
)
def test_whether_a_population_helps(
    single: list[float], population: list[float], says: str
) -> None:
    assert helps(single, population) == says


@pytest.mark.parametrize(
    ("real_errors", "fooled", "winner"),
    [
        ((0.2, 0.2), (0.1, 0.3), 1),
        ((0.2, 0.2), (0.3, 0.1), 2),
        ((0.2, 0.2), (0.3, 0.3), None),
        ((0.2, 0.3), (0.1, 0.3), None),  # one of them is the better judge of real data
        ((0.2, 0.21), (0.1, 0.3), 1),
        ((0.0, 0.0), (0.1, 0.3), 1),
        ((0.0, 0.1), (0.1, 0.3), None),
        ((0.1, 0.0), (0.1, 0.3), None),
        ((0.2, 0.2), (0.1, 0.0), 2),
        ((0.2, 0.2), (0.0, 0.0), None),
    ],
)
def test_a_duel(
    real_errors: tuple[float, float], fooled: tuple[float, float], winner: int | None
) -> None:
    assert duel(real_errors, fooled).winner == winner
    swapped = duel(real_errors[::-1], fooled[::-1]).winner
    assert swapped == (None if winner is None else 3 - winner)


def test_the_ratios_of_a_duel() -> None:
    found = duel((0.2, 0.25), (0.1, 0.4))
    assert found.test_ratio == pytest.approx(0.8)
    assert found.sample_ratio == pytest.approx(0.25)
    assert found.winner is None
    assert duel((0.2, 0.25), (0.1, 0.4), tolerance=0.3).winner == 1


class _Shift(nn.Module):
    """Calls real what is above its batch's mean: in eval mode, what is above zero."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(1, affine=False)

    def forward(self, samples: Tensor) -> Tensor:
        verdict: Tensor = self.norm(samples)[:, 0]
        return verdict


def test_judges_look_in_eval_mode_and_are_left_as_they_were() -> None:
    judge = _Shift()
    samples = torch.arange(1.0, 1201.0)[:, None]
    assert share_called_real(judge, samples) == 1.0  # by batch statistics it would be a half
    assert judge.training
    assert judge.norm.num_batches_tracked == 0
    assert share_called_real(judge, samples - 300.0) == 0.75
