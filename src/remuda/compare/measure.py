"""What a run of a comparison came to: its scores, what it cost, and its score over time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from remuda.compare.jobs import MeasuredAgain
from remuda.errors import ConfigError, DamagedError, StoreError
from remuda.runs.records import RunResult, ScoreSummary
from remuda.runs.store import RunFolder

Array = npt.NDArray[np.float64]

COSTS = ("images", "updates", "cpu_seconds", "wall_seconds")
# What scores must share to be compared, and what each is called.
DEPENDS_ON = {
    "data": "data",
    "extractor": "extractors",
    "extractor_id": "weights of the extractor",
    "scaling": "scalings",
    "samples": "numbers of samples",
    "real": "real images",
}


@dataclass(frozen=True)
class Curve:
    """A run's live score after every round, and what it had cost by then."""

    score: Array
    costs: dict[str, Array]  # by the names in COSTS


@dataclass(frozen=True)
class Measured:
    """A finished run."""

    arm: str
    seed: int
    path: Path
    values: dict[str, float]
    costs: dict[str, float]
    curve: Curve
    depends_on: dict[str, str]  # what the values depend on, by the names in DEPENDS_ON
    made_with: dict[str, str]  # versions and machine


def measure(arm: str, seed: int, path: Path, again: MeasuredAgain | None, live: str) -> Measured:
    """Read a finished run; `again` are scores measured after it, `live` names its live score."""
    folder = RunFolder.open(path)
    result, env = finished_result(folder), folder.env()
    scores = final_scores(folder) if again is None else again.scores
    values = {name: _number(value) for name, value in scores.values.items()}
    known = scores.model_dump(include=set(DEPENDS_ON))
    curve = read_curve(folder, live)
    return Measured(
        arm,
        seed,
        path,
        values,
        _whole_costs(result, curve),
        curve,
        {
            "data": env.data.fingerprint or "",
            **{name: _text(value) for name, value in known.items()},
        },
        {name: _text(getattr(env, name)) for name in ("remuda", "torch", "platform")},
    )


def finished_result(folder: RunFolder) -> RunResult:
    """The result of a run, which must be finished."""
    result = folder.result()
    if result is None:
        raise StoreError(
            f"{folder.path}: is not finished; continue it with: remuda resume {folder.path}"
        )
    return result


def final_scores(folder: RunFolder) -> ScoreSummary:
    """The scores that a finished run ended with."""
    scores = finished_result(folder).scores
    if scores is None:
        raise ConfigError(f"{folder.path}: has no scores to compare (score.extractor=none?)")
    return scores


def read_curve(folder: RunFolder, live: str) -> Curve:
    """The live score by round: of the mixture, or how it covers known modes."""
    scores: dict[int, float] = {}
    spent: dict[int, dict[str, float]] = {}
    for event in folder.iter_events():
        round = event.get("round")
        if round is None:
            continue
        cost = spent.setdefault(round, dict.fromkeys(COSTS, 0.0))
        try:
            if event["event"] == "round":
                cost["images"] += event["images"]
                cost["updates"] += event.get("batches", 0)
                # Runs of earlier versions know only how long it took.
                cost["cpu_seconds"] += event.get("cpu_seconds") or sum(event["seconds"].values())
            elif event["event"] == "population":
                coverage = event.get("coverage") or {}
                scores[round] = _number(coverage.get(live) if coverage else event.get("score"))
                cost["wall_seconds"] += event["seconds"]
        except KeyError as missing:
            raise DamagedError(
                f"{folder.path}: an event of round {round} has no {missing}"
            ) from None
    rounds = sorted(scores)
    costs = {
        name: np.cumsum([spent[round][name] for round in rounds], dtype=np.float64)
        for name in COSTS
    }
    return Curve(np.array([scores[round] for round in rounds]), costs)


def check_alike(runs: Sequence[Measured]) -> None:
    """Refuse to compare scores that depend on different things."""
    for name, called in DEPENDS_ON.items():
        found: dict[str, Measured] = {}
        for run in runs:
            found.setdefault(run.depends_on[name], run)
        if len(found) > 1:
            (first, one), (second, other) = list(found.items())[:2]
            raise ConfigError(
                f"arms {one.arm} and {other.arm} have scores of different {called}: "
                f"{first or 'unknown'} ({one.path}) and {second or 'unknown'} ({other.path}); "
                "allowed: the same for all"
            )


def _whole_costs(result: RunResult, curve: Curve) -> dict[str, float]:
    given = {
        "images": result.images,
        "updates": result.batches,
        "cpu_seconds": result.cpu_seconds,
        "wall_seconds": result.seconds,
    }
    # Runs of earlier versions do not say: then their events do.
    return {
        name: float(value)
        if value is not None
        else float(curve.costs[name][-1])
        if len(curve.costs[name])
        else math.nan
        for name, value in given.items()
    }


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)  # NaN is null in JSON


def _text(value: object) -> str:
    return "" if value is None else str(value)
