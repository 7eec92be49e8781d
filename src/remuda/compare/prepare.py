"""From arms, seeds and a budget to a plan: every arm is loaded and checked before any run."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from remuda.compare.arms import Arm, Budget, parse_collapse
from remuda.compare.measure import final_scores, read_curve
from remuda.compare.plan import (
    UNSAID,
    Plan,
    PlannedArm,
    differences,
    now,
    planned_arm,
    rounds_within,
)
from remuda.config import Config, suggest, validate
from remuda.errors import ConfigError
from remuda.files import VERSION
from remuda.metrics import METRICS, Say, check_metrics, default_metrics
from remuda.runs.environment import revision
from remuda.runs.prepare import Run, with_absolute_paths, with_data_dir
from remuda.runs.scoring import check_reference, measurable
from remuda.runs.store import RunFolder

PILOT_ROUNDS = 4
DEFAULT_SEEDS = tuple(range(10))

# Carries out a short run of an arm, by its name and settings, and says where it is.
Pilot = Callable[[str, Config], Path]


@dataclass(frozen=True)
class Wish:
    """What is asked of a comparison, beyond its arms."""

    seeds: tuple[int, ...] | None = None  # None: those of the runs that exist, or 0 to 9
    budget: Budget | None = None
    score: str | None = None  # that decides; None: what the runs rank mixtures by
    metrics: tuple[str, ...] = ()
    target: float | None = None
    engine: str = "local"
    workers: int | None = None
    data_dir: Path | None = None
    collapsed: str | None = None  # when a run counts as collapsed


def directions() -> dict[str, bool]:
    """All figures that runs can be compared by, and whether higher is better."""
    return {name: higher for metric in METRICS.values() for name, higher in metric.compared.items()}


def plan_training(arms: Sequence[Arm], wish: Wish, pilot: Pilot, say: Say) -> Plan:
    """The plan of a comparison whose runs are to be trained.

    `pilot` carries out a short run where a budget of seconds must be turned into rounds; `say`
    hears of an extractor that must be trained first.
    """
    prepared: list[tuple[Arm, Run]] = []
    for arm in arms:
        config = with_absolute_paths(arm.config(wish.data_dir))
        _refuse_what_the_plan_decides(arm, wish.budget)
        loaded = [run.dataset for _, run in prepared if run.config.data == config.data]
        run = Run.prepare(config, loaded[0] if loaded else None, say=say)
        check_reference(run)
        prepared.append((arm, run))
    _check_comparable(prepared)
    first = prepared[0][1]
    live = _live_score(first.config, wish.score, modes=first.scorer is None)
    score = wish.score or live
    metrics = _with_owner_of(score, wish.metrics)
    for arm, run in prepared:
        _check_measurable(arm.name, run, metrics)
    ends_with = _ends_with(first)
    measured = metrics if wish.metrics or not set(metrics) <= set(ends_with) else []
    planned = [_within_budget(arm, run, wish, pilot) for arm, run in prepared]
    return Plan(
        written=now(),
        arms=planned,
        seeds=list(wish.seeds or DEFAULT_SEEDS),
        score=score,
        live=live,
        data=first.dataset.fingerprint,
        metrics=measured,
        budget=None if wish.budget is None else str(wish.budget),
        target=wish.target,
        collapsed=_collapse(wish, [measured or _ends_with(run) for _, run in prepared]),
        engine=wish.engine,
        workers=wish.workers,
        environment=environment(),
    )


def plan_found(arms: Sequence[Arm], wish: Wish) -> Plan:
    """The plan of a comparison of runs that exist: they were there before it."""
    if wish.budget is not None:
        raise ConfigError(
            f"--budget={wish.budget}: the runs exist already; allowed with arms to be trained"
        )
    if wish.engine != "local" or wish.workers is not None:
        raise ConfigError("--engine, --workers: the runs exist already; allowed: none of them")
    check_metrics(wish.metrics)
    found = {arm.name: _by_seed(arm) for arm in arms}
    common = set.intersection(*(set(runs) for runs in found.values()))
    if wish.seeds is not None:
        missing = sorted(set(wish.seeds) - common)
        if missing:
            raise ConfigError(
                f"--seeds: not every arm has a run with seed {missing[0]}; allowed: "
                f"{_listed(sorted(common)) or 'none'}"
            )
    elif not common:
        seeds = "; ".join(f"{name} has {_listed(sorted(runs))}" for name, runs in found.items())
        raise ConfigError(f"the arms have no seeds in common: {seeds}")
    planned = []
    for arm in arms:
        runs = found[arm.name]
        kept = {seed: path for seed, path in runs.items() if not wish.seeds or seed in wish.seeds}
        places = {str(seed): str(path.absolute()) for seed, path in kept.items()}
        planned.append(planned_arm(arm, _one_configuration(arm.name, kept), runs=places))
    every = [RunFolder.open(Path(path)) for arm in planned for path in arm.runs.values()]
    values = [set(final_scores(folder).values) for folder in every]
    modes = final_scores(every[0]).modes is not None
    live = _live_score(every[0].config(), wish.score, modes=modes)
    score = wish.score or (live if not wish.metrics else _first_value(wish.metrics, live))
    metrics = _with_owner_of(score, wish.metrics) if wish.metrics else []
    for one in planned if metrics else ():
        folder = RunFolder.open(Path(next(iter(one.runs.values()))))
        run = Run.prepare(with_data_dir(folder.config(), wish.data_dir), folder=folder)
        _check_measurable(one.name, run, metrics)
    known = set.intersection(*values) & set(directions())
    if not metrics and score not in known:
        raise ConfigError(
            f"--score={score}: not among the scores that all runs ended with; allowed: "
            f"{', '.join(sorted(known)) or 'none'}, or --metrics to measure others"
        )
    return Plan(
        written=now(),
        arms=planned,
        seeds=sorted({int(seed) for arm in planned for seed in arm.runs}),
        score=score,
        live=live,
        metrics=metrics,
        target=wish.target,
        collapsed=_collapse(wish, [metrics] if metrics else [], known),
        found=True,
        data_dir=None if wish.data_dir is None else str(wish.data_dir.absolute()),
        environment=environment(),
    )


def _ends_with(run: Run) -> list[str]:
    """The metrics that a run ends with."""
    return list(default_metrics(measurable(run)))


def _collapse(
    wish: Wish, measured: Sequence[Sequence[str]], known: Collection[str] | None = None
) -> str | None:
    """When a run counts as collapsed, by a score that the runs of all arms will have."""
    if wish.collapsed is None:
        return None
    values = [{name for one in metrics for name in METRICS[one].compared} for metrics in measured]
    if known is not None:
        values.append(set(known))
    common = set.intersection(*values)
    higher = {name: better for name, better in directions().items() if name in common}
    return str(parse_collapse(wish.collapsed, higher))


def _check_measurable(name: str, run: Run, metrics: Sequence[str]) -> None:
    """Refuse metrics that the runs of an arm will give nothing to look at for."""
    try:
        check_metrics(metrics, measurable(run))
    except ConfigError as error:
        raise ConfigError(f"arm {name}: {error}") from None


def environment() -> dict[str, Any]:
    return {
        "remuda": VERSION,
        "revision": revision(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "platform": platform.platform(),
        "cores": os.cpu_count(),
    }


# ---------------------------------------------------------------------------- parts


def _refuse_what_the_plan_decides(arm: Arm, budget: Budget | None) -> None:
    for word in arm.overrides:
        key = word.partition("=")[0].strip()
        if budget is not None and key == "rounds":
            raise ConfigError(
                f"arm {arm.name}: {word} and --budget={budget} both say how long it trains; "
                "allowed: one of them"
            )
        if key in ("seed", "run.dir", "name"):
            raise ConfigError(
                f"arm {arm.name}: {word}: a comparison chooses seeds (--seeds), folders (--out) "
                "and names (NAME=…)"
            )


def _check_comparable(prepared: Sequence[tuple[Arm, Run]]) -> None:
    """Refuse arms whose scores could not be compared, before anything is trained."""
    asked: dict[str, Callable[[Run], object]] = {
        "data": lambda run: f"{run.dataset.name} ({run.dataset.fingerprint})",
        "extractors (score.extractor)": _extractor,
        "numbers of samples (score.final_samples)": lambda run: run.config.score.final_samples,
        "the real data of their scores (data.reference)": lambda run: run.config.data.reference,
    }
    first, one = prepared[0]
    for called, of in asked.items():
        for arm, run in prepared[1:]:
            if of(run) != of(one):
                raise ConfigError(
                    f"arms {first.name} and {arm.name} differ in {called}: {of(one)} and "
                    f"{of(run)}; allowed: the same for all arms"
                )
    for arm, run in prepared:
        if run.scorer is None and run.dataset.modes is None:
            raise ConfigError(
                f"arm {arm.name}: nothing scores its runs "
                f"(score.extractor={run.config.score.extractor}); allowed: score.extractor=auto"
            )


def _extractor(run: Run) -> str:
    if run.extractor is None:
        return "none"
    return f"{run.extractor.name} ({run.extractor.identity[:12]})"


def _live_score(config: Config, decides: str | None, *, modes: bool) -> str:
    """What runs are scored by after every round: the metric that ranks mixtures, or coverage."""
    if not modes:
        return config.score.metric
    if decides is not None and decides in METRICS["modes"].compared:
        return decides
    return "modes_covered"


def _with_owner_of(score: str, metrics: Sequence[str]) -> list[str]:
    """The metrics asked for, and the one that gives the score that decides."""
    check_metrics(metrics)
    known = directions()
    if score not in known:
        hint = suggest(score, known) or ";"
        raise ConfigError(f"--score={score}: unknown{hint} allowed: {', '.join(known)}")
    owner = next(metric.name for metric in METRICS.values() if score in metric.compared)
    return list(dict.fromkeys((*metrics, owner)))


def _first_value(metrics: Sequence[str], live: str) -> str:
    """What decides where only metrics are asked for: the live score if it is among them."""
    check_metrics(metrics)
    values = [name for metric in metrics for name in METRICS[metric].compared]
    return live if live in values else values[0]


def _within_budget(arm: Arm, run: Run, wish: Wish, pilot: Pilot) -> PlannedArm:
    """The arm with as many rounds as the budget pays for."""
    config = run.config
    per_round = {
        "images": sum(run.costs.values()),
        "updates": float(sum(config.round_batches(items) for items in run.sizes)),
    }
    seconds = None
    if wish.budget is not None:
        if wish.budget.is_time:
            first, seconds = _pilot_seconds(arm, config, wish.budget, pilot)
        else:
            first = per_round[wish.budget.unit]
        rounds = rounds_within(wish.budget, first, seconds or first, arm.name)
        # Checked once more: some settings must fit the number of rounds.
        config = Run.prepare(with_rounds(config, rounds), run.dataset).config
    return planned_arm(
        arm,
        config,
        images=math.floor(per_round["images"] * config.rounds),
        updates=math.floor(per_round["updates"] * config.rounds),
        seconds_per_round=seconds,
    )


def with_rounds(config: Config, rounds: int) -> Config:
    return validate({**config.model_dump(mode="json"), "rounds": rounds})


def _pilot_seconds(arm: Arm, config: Config, budget: Budget, pilot: Pilot) -> tuple[float, float]:
    """What the first round and each further round of this arm take, from a short run.

    The rounds of an arm are the same for every seed, so that its runs can be repeated.
    """
    path = pilot(arm.name, with_rounds(config, PILOT_ROUNDS))
    spent = read_curve(RunFolder.open(path), "").costs[budget.unit.replace("-", "_")]
    return float(spent[0]), float(np.median(np.diff(spent)))


def _by_seed(arm: Arm) -> dict[int, Path]:
    found: dict[int, Path] = {}
    for path in arm.found:
        seed = RunFolder.open(path).config().seed
        if seed in found:
            raise ConfigError(
                f"arm {arm.name}: {found[seed]} and {path} both have seed {seed}; allowed: one run "
                "per seed"
            )
        found[seed] = path
    return dict(sorted(found.items()))


def _one_configuration(name: str, runs: Mapping[int, Path]) -> Config:
    """The settings that all runs of an arm share, but for seed and folder; others are refused."""
    (_, first), *others = runs.items()
    config = RunFolder.open(first).config()
    for _, path in others:
        found = RunFolder.open(path).config()
        for key, one, other in differences(
            config.model_dump(mode="json"), found.model_dump(mode="json")
        ):
            if not key.startswith(UNSAID):
                raise ConfigError(
                    f"arm {name}: {first} has {key}={one} and {path} has {other}; allowed: runs "
                    "that differ in nothing but their seed"
                )
    return config


def _listed(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds))
