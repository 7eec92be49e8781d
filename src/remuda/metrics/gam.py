"""GAM and GAM-II: generators judged by discriminators they never trained against.

GAM compares two models (Im et al. 2016), GAM-II any number (Im, Ma, Kim and Taylor 2017). Both
start from the battle matrix E, in which E[i, j] is the share of generator j's samples that
discriminator i calls real. Everything here is a function of that matrix and of who met whom.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from remuda.errors import ConfigError

Exclusion = Literal["seen", "block"]
EXCLUSIONS: tuple[Exclusion, ...] = ("seen", "block")
# How alike two discriminators' errors on real data must be for GAM to trust them.
TOLERANCE = 0.1
_CHUNK = 500


@dataclass(frozen=True)
class Contender:
    """One GAN of a battle: its run, its discriminator, and those that its generator met."""

    block: int
    lineage: str  # travels with the discriminator when GANs swap them
    met: frozenset[str]  # lineages that the generator trained against


@dataclass(frozen=True)
class Gam2Score:
    """The GAM-II score of one generator; NaN where no judge is left."""

    average: float
    worst: float
    judges: int


@torch.no_grad()
def share_called_real(discriminator: nn.Module, samples: Tensor) -> float:
    """Share of the samples that a discriminator calls real: one entry of the battle matrix.

    In eval mode, or the answers would depend on the batch; the mode is restored afterwards.
    """
    was_training = discriminator.training
    discriminator.eval()
    try:
        real = sum(int((discriminator(part) > 0).sum()) for part in torch.split(samples, _CHUNK))
    finally:
        discriminator.train(was_training)
    return real / len(samples)


def may_judge(
    judges: Sequence[Contender], makers: Sequence[Contender], exclusion: Exclusion
) -> Tensor:
    """Boolean [i, j]: whether discriminator i of the judges may judge generator j of the makers.

    `seen` bars the discriminators that the generator trained against; `block` bars all of its run.
    """
    if exclusion not in EXCLUSIONS:
        raise ConfigError(f"exclusion={exclusion}: unknown; allowed: {', '.join(EXCLUSIONS)}")
    return torch.tensor(
        [
            [
                judge.lineage not in maker.met
                if exclusion == "seen"
                else judge.block != maker.block
                for maker in makers
            ]
            for judge in judges
        ]
    )


def gam2(shares: Tensor, allowed: Tensor) -> list[Gam2Score]:
    """GAM-II of every generator: the mean and the least of its judges' shares; higher is better."""
    scores = []
    for column, judges in zip(shares.double().T, allowed.T, strict=True):
        heard = column[judges]
        if len(heard) == 0:
            scores.append(Gam2Score(math.nan, math.nan, 0))
        else:
            scores.append(Gam2Score(heard.mean().item(), heard.min().item(), len(heard)))
    return scores


def best(scores: Sequence[Gam2Score]) -> int | None:
    """The generator with the highest average, the first of equals; None where none was judged."""
    judged = [place for place, one in enumerate(scores) if not math.isnan(one.average)]
    return max(judged, key=lambda place: scores[place].average, default=None)


def helps(single: Sequence[float], population: Sequence[float]) -> str:
    """What a population's averages say beside those of GANs trained alone.

    It helps when its best member beats the best single GAN, strongly when its worst member does.
    """
    if not single or not population or any(map(math.isnan, (*single, *population))):
        return "unknown"
    if min(population) > max(single):
        return "strongly helps"
    return "helps" if max(population) > max(single) else "does not help"


@dataclass(frozen=True)
class Duel:
    """GAM between two models: who wins, and the two ratios that say so."""

    test_ratio: float  # of the discriminators' errors on real data; about 1 in a fair duel
    sample_ratio: float  # of their errors on the other's samples; below 1 model 1 is the better
    winner: int | None  # 1, 2, or None for a tie


def duel(
    real_errors: tuple[float, float],
    fooled: tuple[float, float],
    tolerance: float = TOLERANCE,
) -> Duel:
    """GAM. `real_errors` are the shares of real data that D1 and D2 call generated.

    `fooled` are the share of G2's samples that D1 calls real, and of G1's that D2 calls real.
    """
    test_ratio, sample_ratio = _ratio(*real_errors), _ratio(*fooled)
    fair = 0 < test_ratio < math.inf and abs(math.log(test_ratio)) < tolerance
    winner = None
    if fair and sample_ratio != 1:
        winner = 1 if sample_ratio < 1 else 2
    return Duel(test_ratio, sample_ratio, winner)


def _ratio(above: float, below: float) -> float:
    if below == 0:
        # Two that make no errors are equal.
        return 1.0 if above == 0 else math.inf
    return above / below
