"""What does a mixture of a finished population's members give over the best of them?

    python -m benchmarks.mixtures RUN [RUN ...] [--json FILE] [--data-dir DIR]

Takes the (averaged) generators in each run's last checkpoint and makes one ensemble of them by

    best        the member with the least FID
    uniform     all members with equal weights
    weighted    the weights with the least FID of the mixture (SLSQP from uniform and from best)
    balanced    the weights with the least TVD of the classes (a linear programme)
    average     one generator with the mean weights of the largest family; – without relatives

Best, weighted and balanced are chosen by the same 2,000 fresh samples of each member against
training images; FID is freed of its bias by the jackknife, as live scores are. All are reported by
10,000 other samples against the images that no cell saw, by the run's own extractor. Over runs
named ARM-seed-N it prints the mean differences from best, with 95 % intervals and the exact
sign-flip test's p over seeds; stars are after Holm's correction over all that is printed.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from scipy import optimize

from remuda.compare.result import ENOUGH_SEEDS
from remuda.compare.statistics.significance import Significance, holm, significance
from remuda.compare.statistics.summaries import Difference, difference, stars
from remuda.errors import ConfigError, RemudaError, StoreError
from remuda.files import write_json
from remuda.methods import ancestor, mean_tensors
from remuda.metrics import METRICS, GroupedStatistics, SampleStatistics, score_of
from remuda.runs.ensemble import Ensemble, Member
from remuda.runs.population import Population, load_population
from remuda.runs.prepare import Run
from remuda.runs.scoring import check_reference, score_ensemble
from remuda.runs.store import RunFolder
from remuda.streams import stream_key

CHOOSING, REPORTING = 2_000, 10_000  # samples: of each member, and of each ensemble
WAYS = ("best", "uniform", "weighted", "balanced", "average")
FIGURES = {"fid": "{:.3f}", "fid_logits": "{:.3f}", "tvd": "{:.4f}", "is": "{:.3f}"}
STEP = 1e-4  # of finite differences: far above the rounding of a FID, far below its curvature

Weights = list[float]
Step = Callable[[str], None]


@dataclass(frozen=True)
class Found:
    """What the ways to mix came to in one run; weights by member, figures by name."""

    path: Path
    weights: Mapping[str, Weights]
    figures: Mapping[str, Mapping[str, float]]

    @property
    def arm(self) -> str | None:
        """The arm of a comparison that it is a run of; None if its name does not say."""
        named = re.fullmatch(r"(.+)-seed-\d+", self.path.name)
        return str(self.path.parent / named[1]) if named else None


@dataclass(frozen=True)
class Versus:
    """How a way differs from best in one figure, over the seeds of an arm."""

    arm: str
    way: str
    figure: str
    seeds: int
    difference: Difference
    test: Significance


# ---------------------------------------------------------------------------- choosing


def choose(real: SampleStatistics, parts: Sequence[GroupedStatistics]) -> dict[str, Weights]:
    """The weights that each way gives members of which these samples are known."""

    def loss(weights: Sequence[float]) -> float:
        shares = np.clip(weights, 0, None)
        mixed = GroupedStatistics.mixture(parts, (shares / shares.sum()).tolist())
        return METRICS["fid"].as_loss(mixed.corrected(partial(score_of, "fid", real)))

    corners = np.eye(len(parts))
    alone = [loss(corner) for corner in corners]
    if not np.isfinite(alone).all():
        raise ConfigError(f"member {np.argmax(alone)} makes samples that are not finite")
    best, uniform = corners[np.argmin(alone)], np.full(len(parts), 1 / len(parts))
    tried = [best, uniform]
    for start in (uniform, best) if len(parts) > 1 else ():
        found = optimize.minimize(
            *(loss, start),
            method="SLSQP",
            bounds=[(0, 1)] * len(parts),
            constraints={"type": "eq", "fun": lambda weights: weights.sum() - 1},
            options={"eps": STEP, "ftol": 1e-4},
        ).x.clip(0)
        tried.append(found / found.sum())
    chosen = {"best": best, "uniform": uniform, "weighted": min(tried, key=loss)}
    return {name: one.tolist() for name, one in chosen.items()} | {"balanced": balance(real, parts)}


def balance(real: SampleStatistics, parts: Sequence[GroupedStatistics]) -> Weights:
    """The least sum of t with |shares of the mixture - real shares| <= t, class by class."""
    whole = [GroupedStatistics.mixture([part], [1.0]).whole for part in parts]
    shares = torch.stack([one.class_shares for one in whole], 1).numpy()
    wanted, (classes, members) = real.class_shares.numpy(), shares.shape
    found = optimize.linprog(
        np.r_[np.zeros(members), np.ones(classes)],
        A_ub=np.block([[shares, -np.eye(classes)], [-shares, -np.eye(classes)]]),
        b_ub=np.r_[wanted, -wanted],
        A_eq=np.r_[np.ones(members), np.zeros(classes)][None],
        b_eq=[1.0],
    )
    weights = found.x[:members].clip(0)
    return [float(one) for one in weights / weights.sum()]


def family(population: Population) -> Weights | None:
    """Equal weights for the most members of one ancestor; None if none has a relative."""
    folder = RunFolder.open(population.path)
    parcels = folder.load_checkpoint(folder.checkpoints()[-1])
    ancestors = [ancestor(parcels[member.cell]) for member in population.members]
    ((largest, size),) = Counter(ancestors).most_common(1)
    return [(one == largest) / size for one in ancestors] if size > 1 else None


# ---------------------------------------------------------------------------- reporting


def mix(path: Path, data_dir: Path | None, step: Step) -> Found:
    """All ways for one finished run."""
    folder = RunFolder.open(path)
    if folder.result() is None:
        raise StoreError(f"{path}: the run is not finished; `remuda resume {path}` continues it")
    population = load_population(path, data_dir)
    data = population.config.data.model_copy(update={"reference": "test"})
    config = population.config.model_copy(update={"data": data})
    run = Run.prepare(config, population.dataset, folder=folder)
    if run.scorer is None or not run.scorer.extractor.classes:
        raise ConfigError(f"{path}: nothing that knows classes scores it; allowed: scored images")
    check_reference(run)
    parts = []
    for member in population.members:
        step(f"sampling cell {member.cell}")
        samples = population.draw(member, CHOOSING, config.seed, "mixtures")
        parts.append(GroupedStatistics.of(run.scorer.extractor(samples)))
    step("choosing weights")
    weights, related = choose(run.scorer.real, parts), family(population)
    weights |= {"average": related} if related else {}
    figures = {}
    for way, chosen in weights.items():
        step(f"scoring {way}")
        ensemble = _ensemble(population, chosen, merged=way == "average")
        seed = stream_key(config.seed, 0, population.round, "mixtures")
        scores = score_ensemble(run, ensemble, [*FIGURES], samples=REPORTING, seed=seed)
        assert scores is not None  # there is an extractor
        figures[way] = {name: scores.values[name] for name in FIGURES}
    return Found(path.resolve(), weights, figures)


def _ensemble(population: Population, weights: Weights, *, merged: bool) -> Ensemble:
    members = [
        Member(one.cell, weight, one.generator.state_dict(), one.network)
        for one, weight in zip(population.members, weights, strict=True)
        if weight > 0
    ]
    if merged:
        mean = mean_tensors([one.state for one in members])
        members = [Member(members[0].cell, 1.0, mean, members[0].network)]
    dataset = population.dataset
    return Ensemble(population.config.network, dataset.shape, tuple(members), dataset.scaling)


def compare(found: Sequence[Found]) -> list[Versus]:
    """Every way against best, in every figure, for arms of at least two runs."""
    rows = []
    arms = Counter(run.arm for run in found if run.arm)
    for arm, way in ((arm, way) for arm, runs in arms.items() if runs > 1 for way in WAYS[1:]):
        runs = [run.figures for run in found if run.arm == arm and way in run.figures]
        for name in FIGURES if runs else ():
            ours, best = ([run[one][name] for run in runs] for one in (way, "best"))
            lower = not METRICS[name].facts.higher_is_better
            test = significance(ours, best, paired=True, lower_is_better=lower)
            apart = difference(ours, best, paired=True)
            rows.append(Versus(arm, way, name, len(runs), apart, test))
    return rows


def _run_table(run: Found) -> str:
    lines = [f"{run.path}", f"  {'':10}{_titles(12)}   weights"]
    for way in WAYS:
        figures, weights = run.figures.get(way), run.weights.get(way, [])
        shown = [form.format(figures[one]) if figures else "–" for one, form in FIGURES.items()]
        shares = " ".join(f"{weight:.2f}" for weight in weights)
        lines.append(f"  {way:10}{''.join(f'{one:>12}' for one in shown)}   {shares}")
    return "\n".join(lines)


def _arm_tables(rows: Sequence[Versus]) -> str:
    adjusted = dict(zip(map(id, rows), holm([row.test.p for row in rows]), strict=True))
    lines = []
    for arm in dict.fromkeys(row.arm for row in rows):
        lines += [f"{arm}: difference from best, [95 %], p", f"  {'':10}seeds{_titles(34)}"]
        for way in WAYS[1:]:
            own = [row for row in rows if (row.arm, row.way) == (arm, way)]
            cells = [_versus(row, adjusted[id(row)]) for row in own] or ["–"] * len(FIGURES)
            seeds = own[0].seeds if own else 0
            lines.append(f"  {way:10}{seeds:5}{''.join(f'{one:>34}' for one in cells)}")
    return "\n".join(lines)


def _versus(row: Versus, adjusted: float | None) -> str:
    apart, form = row.difference, FIGURES[row.figure].replace(":", ":+")
    if apart.estimate is None or apart.low is None or apart.high is None:
        return "–" if apart.estimate is None else form.format(apart.estimate)
    mark = stars(adjusted) if row.seeds >= ENOUGH_SEEDS else ""
    middle, low, high = map(form.format, (apart.estimate, apart.low, apart.high))
    return f"{middle} [{low}, {high}] {row.test.p:.3f}{mark}"


def _titles(width: int) -> str:
    return "".join(f"{METRICS[name].facts.title:>{width}}" for name in FIGURES)


# ---------------------------------------------------------------------------- command


def main(words: Sequence[str] | None = None) -> int:
    """The exit code: of the last folder that could not be used, if any; it is told in a line."""
    parser = argparse.ArgumentParser(prog="mixtures", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", metavar="RUN", nargs="+", type=Path, help="folder of a run")
    parser.add_argument("--json", type=Path, help="file to write the figures to")
    parser.add_argument("--data-dir", type=Path, help="folder with the data's files")
    arguments = parser.parse_args(words)
    torch.set_num_threads(1)
    found, code, console = [], 0, Console(stderr=True)
    for number, path in enumerate(arguments.runs, 1):
        say = partial(console.print, soft_wrap=True, markup=False, highlight=False)
        say(f"mixtures: {number}/{len(arguments.runs)} {path}")
        try:
            with console.status("") as status:  # nothing where there is no terminal
                found.append(mix(path, arguments.data_dir, status.update))
        except RemudaError as error:
            say(f"mixtures: {error}")
            code = error.exit_code
            continue
        print(_run_table(found[-1]), flush=True)
    rows = compare(found)
    if rows:
        print(_arm_tables(rows), flush=True)
    if arguments.json is not None and found:
        write_json(arguments.json, _record(found, rows))
    return code


def _record(found: Sequence[Found], rows: Sequence[Versus]) -> dict[str, Any]:
    plain = [
        {**vars(row), "difference": vars(row.difference), "test": vars(row.test)} for row in rows
    ]
    runs = [{**vars(run), "path": str(run.path), "arm": run.arm} for run in found]
    return {"choosing": CHOOSING, "reporting": REPORTING, "runs": runs, "versus_best": plain}


if __name__ == "__main__":
    sys.exit(main())
