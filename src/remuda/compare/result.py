"""What a comparison found: arms, pairs of arms, costs and warnings, from the runs there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import numpy as np

from remuda.compare.arms import parse_collapse
from remuda.compare.measure import COSTS, Measured
from remuda.compare.plan import Plan, share_their_start
from remuda.compare.statistics.curves import CostSummary, cost_to_reach, summarise_costs
from remuda.compare.statistics.shares import Share, same_share, share
from remuda.compare.statistics.significance import Significance, holm, significance
from remuda.compare.statistics.summaries import (
    Chance,
    Difference,
    Summary,
    difference,
    effect_word,
    next_seed_wins,
    stars,
    summarise,
    vargha_delaney,
)
from remuda.config import validate
from remuda.errors import ConfigError

ENOUGH_SEEDS = 5
ALPHA = 0.05


@dataclass(frozen=True)
class Score:
    """A figure that arms are compared by."""

    name: str
    title: str
    higher_is_better: bool

    @property
    def label(self) -> str:
        return f"{self.title} ({'higher' if self.higher_is_better else 'lower'} is better)"


@dataclass(frozen=True)
class ArmResult:
    """What the runs of one arm came to."""

    name: str
    seeds: tuple[int, ...]
    values: Mapping[str, tuple[float, ...]]  # by score, one per seed
    scores: Mapping[str, Summary]
    costs: Mapping[str, Summary]
    reached: Mapping[str, CostSummary] | None  # what the target cost, by kind of cost
    collapsed: Share | None = None  # of its runs, where the plan says when they are


@dataclass(frozen=True)
class PairResult:
    """Whether and how two arms differ in one score; A is the first named."""

    a: str
    b: str
    score: str
    higher_is_better: bool
    paired: bool
    runs: tuple[int, int]  # of A and of B that were compared
    difference: Difference
    test: Significance
    probability: float  # that a random run of A is better than one of B (Vargha and Delaney)
    effect: str
    next_seed: Chance
    adjusted: float | None = None  # p after Holm's correction over all pairs and scores

    @property
    def is_enough(self) -> bool:
        return min(self.runs) >= ENOUGH_SEEDS

    @property
    def stars(self) -> str:
        """None below five seeds, whatever p is."""
        return stars(self.adjusted) if self.is_enough else ""

    @property
    def winner(self) -> str | None:
        """The better arm, where the difference is beyond chance: by what the test looked at."""
        if not self.stars:
            return None
        by = self.difference.estimate
        if self.paired and by:
            is_first = (by > 0) == self.higher_is_better
        else:
            is_first = self.probability > 0.5
        return self.a if is_first else self.b


@dataclass(frozen=True)
class CollapsePair:
    """Whether runs of one arm collapse more often than those of another."""

    a: str
    b: str
    test: Significance
    adjusted: float | None  # p after Holm's correction over all pairs of arms


@dataclass(frozen=True)
class Result:
    """A comparison as far as its runs are finished."""

    plan: Plan
    scores: tuple[Score, ...]  # the one that decides comes first
    live: Score
    arms: tuple[ArmResult, ...]
    pairs: tuple[PairResult, ...]
    measured: tuple[Measured, ...]
    planned_only: tuple[PairResult, ...] = ()  # the deciding score without seeds added later
    collapses: tuple[CollapsePair, ...] = ()
    warnings: tuple[str, ...] = field(default=())

    @property
    def deciding(self) -> tuple[PairResult, ...]:
        return tuple(pair for pair in self.pairs if pair.score == self.plan.score)


def analyse(
    plan: Plan, measured: Sequence[Measured], scores: Sequence[Score], live: Score
) -> Result:
    """Compare the arms by the runs that are finished."""
    names = [arm.name for arm in plan.arms]
    present = [name for name in names if any(run.arm == name for run in measured)]
    shared = [
        score for score in scores if all(score.name in run.values for run in measured) and measured
    ]
    if measured and (not shared or shared[0].name != plan.score):
        known = ", ".join(score.name for score in shared) or "none"
        raise ConfigError(f"{plan.score} is to decide, and not all runs have it; they have {known}")
    arms = tuple(_arm(plan, name, measured, shared, live) for name in present)
    pairs = _pairs(plan, measured, shared, present)
    planned_only: tuple[PairResult, ...] = ()
    if plan.additions:
        first = [run for run in measured if run.seed in plan.seeds]
        if len({run.arm for run in first}) == len(present):
            found = _pairs(plan, first, shared, present)
            planned_only = tuple(pair for pair in found if pair.score == plan.score)
    fallen = _fallen(plan, measured, shared)
    if fallen:
        counts = {name: share(sum(runs.values()), len(runs)) for name, runs in fallen.items()}
        arms = tuple(replace(arm, collapsed=counts[arm.name]) for arm in arms)
    return Result(
        *(plan, tuple(shared), live, arms, pairs, tuple(measured), planned_only),
        collapses=_collapse_pairs(plan, fallen),
    )


def _fallen(
    plan: Plan, measured: Sequence[Measured], scores: Sequence[Score]
) -> dict[str, dict[int, bool]]:
    """By arm and seed, whether the run collapsed; empty where the plan says nothing of it."""
    if plan.collapsed is None or not measured:
        return {}
    collapsed = parse_collapse(
        plan.collapsed, {score.name: score.higher_is_better for score in scores}
    )
    names = [arm.name for arm in plan.arms]
    found: dict[str, dict[int, bool]] = {name: {} for name in names}
    for run in measured:
        found[run.arm][run.seed] = collapsed(run.values[collapsed.score])
    return {name: runs for name, runs in found.items() if runs}


def _collapse_pairs(
    plan: Plan, fallen: Mapping[str, Mapping[int, bool]]
) -> tuple[CollapsePair, ...]:
    tests = {}
    for a, b in combinations(fallen, 2):
        common = sorted(set(fallen[a]) & set(fallen[b]))
        paired = bool(common) and _paired(plan, a, b)
        one, other = (
            [arm[seed] for seed in common] if paired else list(arm.values())
            for arm in (fallen[a], fallen[b])
        )
        tests[a, b] = same_share(one, other, paired=paired)
    adjusted = holm([test.p for test in tests.values()])
    return tuple(
        CollapsePair(a, b, test, p)
        for ((a, b), test), p in zip(tests.items(), adjusted, strict=True)
    )


def _paired(plan: Plan, a: str, b: str) -> bool:
    return share_their_start(validate(plan.arm(a).config), validate(plan.arm(b).config))


def _arm(
    plan: Plan, name: str, measured: Sequence[Measured], scores: Sequence[Score], live: Score
) -> ArmResult:
    runs = sorted((run for run in measured if run.arm == name), key=lambda run: run.seed)
    values = {score.name: tuple(run.values[score.name] for run in runs) for score in scores}
    reached = None
    if plan.target is not None:
        reached = {
            cost: summarise_costs(
                [
                    cost_to_reach(
                        run.curve.costs[cost],
                        run.curve.score,
                        plan.target,
                        lower_is_better=not live.higher_is_better,
                    )
                    for run in runs
                ]
            )
            for cost in COSTS
        }
    return ArmResult(
        name,
        tuple(run.seed for run in runs),
        values,
        {
            score.name: summarise(values[score.name], lower_is_better=not score.higher_is_better)
            for score in scores
        },
        {
            cost: summarise([run.costs[cost] for run in runs], lower_is_better=True)
            for cost in COSTS
        },
        reached,
    )


def _pairs(
    plan: Plan, measured: Sequence[Measured], scores: Sequence[Score], names: Sequence[str]
) -> tuple[PairResult, ...]:
    """All pairs under all scores; Holm's correction is over all of them together."""
    by_arm = {name: {run.seed: run for run in measured if run.arm == name} for name in names}
    found = [
        _pair(plan, score, a, b, by_arm) for score in scores for a, b in combinations(names, 2)
    ]
    adjusted = holm([pair.test.p for pair in found])
    return tuple(
        PairResult(**{**vars(pair), "adjusted": p}) for pair, p in zip(found, adjusted, strict=True)
    )


def _pair(
    plan: Plan, score: Score, a: str, b: str, by_arm: Mapping[str, Mapping[int, Measured]]
) -> PairResult:
    paired = _paired(plan, a, b)
    ours, theirs = by_arm[a], by_arm[b]
    common = sorted(set(ours) & set(theirs))
    if paired and common:
        one, other = ([arm[seed] for seed in common] for arm in (ours, theirs))
    else:
        paired, one, other = False, list(ours.values()), list(theirs.values())
    first, second = (np.array([run.values[score.name] for run in arm]) for arm in (one, other))
    lower = not score.higher_is_better
    probability = vargha_delaney(first, second, lower_is_better=lower)
    return PairResult(
        a,
        b,
        score.name,
        score.higher_is_better,
        paired,
        (len(first), len(second)),
        difference(first, second, paired=paired),
        significance(first, second, paired=paired, lower_is_better=lower),
        probability,
        effect_word(probability),
        next_seed_wins(first, second, paired=paired, lower_is_better=lower),
    )


def to_json(result: Result) -> dict[str, Any]:
    """The part of compare.json that the statistics make."""
    return {
        "scores": [vars(score) for score in result.scores],
        "live_score": vars(result.live),
        "arms": [
            {
                "name": arm.name,
                "seeds": list(arm.seeds),
                "scores": {name: vars(one) for name, one in arm.scores.items()},
                "costs": {name: vars(one) for name, one in arm.costs.items()},
                "collapsed": arm.collapsed and vars(arm.collapsed),
                "target_reached": arm.reached
                and {name: vars(one) for name, one in arm.reached.items()},
            }
            for arm in result.arms
        ],
        "pairs": [_pair_json(pair) for pair in result.pairs],
        "collapses": [
            {"a": pair.a, "b": pair.b, "test": vars(pair.test), "p_holm": pair.adjusted}
            for pair in result.collapses
        ],
        "without_added_seeds": [_pair_json(pair) for pair in result.planned_only] or None,
    }


def _pair_json(pair: PairResult) -> dict[str, Any]:
    return {
        "a": pair.a,
        "b": pair.b,
        "score": pair.score,
        "paired": pair.paired,
        "runs": list(pair.runs),
        "difference": vars(pair.difference),
        "test": vars(pair.test),
        "p_holm": pair.adjusted,
        "stars": pair.stars,
        "probability_a_better": pair.probability,
        "effect": pair.effect,
        "next_seed": vars(pair.next_seed),
    }
