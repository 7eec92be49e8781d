"""The figures of a comparison, as PNG to look at and PDF to print."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from remuda.analysis.extras import is_installed
from remuda.compare.figures import (
    ArmCurve,
    Bracket,
    Difference,
    DotPanel,
    Form,
    Interval,
    cost_panels,
    dots,
    intervals,
    matrix,
)
from remuda.compare.folder import Comparison
from remuda.compare.measure import Array
from remuda.compare.result import ArmResult, PairResult, Result
from remuda.compare.statistics.curves import band
from remuda.files import write_atomically

FORMS: tuple[Form, ...] = ("png", "pdf")


def draw(comparison: Comparison, result: Result) -> list[Path]:
    """Write all figures that the runs allow; the PNG files. None without matplotlib."""
    if not result.arms or not is_installed("matplotlib"):
        return []
    drawn: dict[str, Callable[[Form], bytes]] = {"seeds": lambda form: dots(_panels(result), form)}
    if result.pairs:
        drawn["differences"] = lambda form: intervals(_differences(result), form)
        drawn["pairs"] = lambda form: _matrix(result, form)
    if any(np.isfinite(run.curve.score).any() for run in result.measured):
        drawn["curves"] = lambda form: _curves(result, form)
    found = []
    for name, make in drawn.items():
        for form in FORMS:
            path = comparison.path / "figures" / f"{name}.{form}"
            write_atomically(path, make(form))
            found.append(path)
    return [path for path in found if path.suffix == ".png"]


def _panels(result: Result) -> list[DotPanel]:
    paired = all(pair.paired for pair in result.pairs) and len({a.seeds for a in result.arms}) == 1
    return [
        DotPanel(
            score.title,
            {arm.name: np.array(arm.values[score.name]) for arm in result.arms},
            score.higher_is_better,
            brackets=[
                Bracket(pair.a, pair.b, pair.adjusted)
                for pair in result.pairs
                if pair.score == score.name and pair.stars and pair.adjusted is not None
            ],
            paired=paired,
        )
        for score in result.scores
    ]


def _differences(result: Result) -> list[Difference]:
    scores = {score.name: score for score in result.scores}
    rows = []
    for pair in result.pairs:
        found, score = pair.difference, scores[pair.score]
        rows.append(
            Difference(
                score.title,
                pair.a,
                pair.b,
                Interval(_number(found.estimate), _number(found.low), _number(found.high)),
                _adjusted(pair),
                pair.probability,
                score.higher_is_better,
            )
        )
    return rows


def _matrix(result: Result, form: Form) -> bytes:
    names = [arm.name for arm in result.arms]
    better = np.full((len(names), len(names)), np.nan)
    adjusted = better.copy()
    for pair in result.deciding:
        row, column = names.index(pair.a), names.index(pair.b)
        better[row, column], better[column, row] = pair.probability, 1 - pair.probability
        adjusted[row, column] = adjusted[column, row] = _adjusted(pair)
    return matrix(names, better, adjusted, result.scores[0].title, form)


def _adjusted(pair: PairResult) -> float:
    return pair.adjusted if pair.adjusted is not None and pair.is_enough else math.nan


def _curves(result: Result, form: Form) -> bytes:
    over = [
        [_arm_curve(arm, result, cost) for arm in result.arms] for cost in ("images", "cpu_seconds")
    ]
    live, target = result.live, result.plan.target
    return cost_panels(over[0], over[1], live.title, target, live.higher_is_better, form=form)


def _arm_curve(arm: ArmResult, result: Result, cost: str) -> ArmCurve:
    runs = [run for run in result.measured if run.arm == arm.name]
    seeds = [(run.curve.costs[cost], run.curve.score) for run in runs]
    found = band(seeds, lower_is_better=not result.live.higher_is_better)
    return ArmCurve(
        arm.name,
        np.array(found.grid),
        _array(found.median),
        _array(found.q1),
        _array(found.q3),
        seeds,
    )


def _array(values: Sequence[float | None]) -> Array:
    return np.array([_number(value) for value in values])


def _number(value: float | None) -> float:
    return math.nan if value is None else value
