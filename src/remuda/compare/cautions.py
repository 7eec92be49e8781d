"""What a reader must know before believing a comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from remuda.compare.arms import parse_budget
from remuda.compare.result import ALPHA, ENOUGH_SEEDS, Result
from remuda.compare.words import seeds_text

UNEQUAL = 0.05  # a difference in cost that is worth a word
OFF_BUDGET = 0.1


def cautions(result: Result, states: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """One line each; `states` are all runs, also those that are not finished."""
    return (
        *_few_seeds(result),
        *_unfinished(states),
        *_costs(result),
        *_budget(result),
        *_places(result),
        *_origin(result),
    )


def _few_seeds(result: Result) -> list[str]:
    fewest = min((min(pair.runs) for pair in result.deciding), default=0)
    if not result.deciding:
        return ["no two arms have finished runs yet"]
    if fewest < ENOUGH_SEEDS:
        return [
            f"{seeds_text(fewest)} too few: at least {ENOUGH_SEEDS} are needed before anything is "
            "called a difference"
        ]
    best = min(pair.test.smallest for pair in result.deciding) * len(result.pairs)
    if best >= ALPHA:
        return [
            f"with {fewest} seeds and {len(result.pairs)} tests no difference can be shown: p "
            f"cannot fall below {min(1.0, best):.3f}; more seeds or fewer scores (--metrics) would"
        ]
    return []


def _unfinished(states: Sequence[Mapping[str, Any]]) -> list[str]:
    failed = [one for one in states if one["state"] == "failed"]
    waiting = sum(one["state"] in ("waiting", "running") for one in states)
    lines = [f"{one['arm']} seed {one['seed']} failed: {one['error']}" for one in failed]
    if waiting:
        lines.append(f"{waiting} of {len(states)} runs are not finished: this is not the result")
    return lines


def _costs(result: Result) -> list[str]:
    """Arms that were not given the same, where no budget made them equal."""
    if result.plan.budget is not None:
        return []
    images = {arm.name: arm.costs["images"].median or 0.0 for arm in result.arms}
    if not images or max(images.values()) <= (1 + UNEQUAL) * min(images.values()):
        return []
    spent = ", ".join(f"{name} {count:,.0f}" for name, count in images.items())
    return [f"the arms trained on different numbers of images: {spent}; --budget makes them equal"]


def _budget(result: Result) -> list[str]:
    if result.plan.budget is None:
        return []
    budget = parse_budget(result.plan.budget)
    lines = []
    for arm in result.arms:
        spent = arm.costs[budget.unit.replace("-", "_")].median
        if spent is not None and abs(spent / budget.amount - 1) > OFF_BUDGET:
            lines.append(
                f"{arm.name} spent {spent:,.4g} {budget.unit} per run of a budget of "
                f"{budget.amount:,.4g}: "
                + (
                    "its pace was measured in a short run, and is not always the same"
                    if budget.is_time
                    else "a run is a whole number of rounds"
                )
            )
    return lines


def _places(result: Result) -> list[str]:
    lines = []
    for name in ("remuda", "torch", "platform"):
        found = sorted({run.made_with[name] for run in result.measured})
        if len(found) > 1:
            lines.append(
                f"the runs were made with different versions of {name}: {', '.join(found)}"
            )
    return lines


def _origin(result: Result) -> list[str]:
    if not result.plan.found:
        return []
    return ["the runs were there before the plan of this comparison was written"]
