"""What does a mixture of a finished population's members give over the best of them?

    python -m benchmarks.mixtures RUN [RUN ...] [--json FILE] [--data-dir DIR]

Takes the (averaged) generators in each run's last checkpoint and makes one ensemble of them by

    best        the member with the least FID
    uniform     all members with equal weights
    weighted    the weights with the least FID of the mixture
    balanced    the weights with the least TVD of the classes
    average     one generator with the mean weights of the largest family; – without relatives

Best, weighted and balanced are chosen by the same 2,000 fresh samples of each member against
training images; FID is freed of its bias by the jackknife, as live scores are. All are reported by
10,000 other samples against the images that no cell saw, by the run's own extractor. Over runs
named ARM-seed-N it prints the mean differences from best with 95 % intervals, and the p of the
sign-flip test over seeds; stars are after Holm's correction over all that is printed.

FID is convex in the weights: |μ−m|² + tr C is linear in them, C concave, and tr (AC)^½ concave and
growing in C. So no mixture is worse than its members are in the mean, and SLSQP finds the least but
for the correction, which is why it starts from uniform and from best.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from scipy import optimize

from remuda.compare.result import ENOUGH_SEEDS
from remuda.compare.statistics.significance import Significance, holm, significance
from remuda.compare.statistics.summaries import Array, Difference, difference, stars
from remuda.errors import ConfigError, RemudaError, StoreError
from remuda.files import write_json
from remuda.methods import ancestor, mean_tensors
from remuda.metrics import METRICS, GroupedStatistics, SampleStatistics, score_of
from remuda.runs.ensemble import Ensemble, Labels, Member
from remuda.runs.population import Population, load_population
from remuda.runs.prepare import Run
from remuda.runs.scoring import check_reference, score_ensemble
from remuda.runs.store import RunFolder
from remuda.streams import stream_key

CHOOSING, REPORTING = 2_000, 10_000  # samples: of each member, and of each ensemble
WAYS = ("best", "uniform", "weighted", "balanced", "average")
FIGURES = {"fid": ".3f", "fid_logits": ".3f", "tvd": ".4f", "is": ".3f"}
STEP = 1e-4  # of finite differences: far above the rounding of a FID, far below its curvature

Weights = list[float]


@dataclass(frozen=True)
class Found:
    """What the ways to mix came to in one run; weights by member, figures by name."""

    path: str
    arm: str | None  # of a comparison, if the folder's name says so
    weights: Mapping[str, Weights]
    figures: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Versus:
    """How a way differs from best in one figure, over the seeds of an arm."""

    arm: str
    way: str
    figure: str
    seeds: int
    difference: Difference
    test: Significance


def choose(real: SampleStatistics, parts: Sequence[GroupedStatistics]) -> dict[str, Weights]:
    """The weights that each way gives members of which these samples are known."""

    def loss(weights: Array) -> float:
        shares = weights.clip(0) / weights.clip(0).sum()
        mixed = GroupedStatistics.mixture(parts, shares.tolist())
        return METRICS["fid"].as_loss(mixed.corrected(partial(score_of, "fid", real)))

    corners = np.eye(len(parts))
    alone = [loss(corner) for corner in corners]
    best, uniform = corners[np.argmin(alone)], np.full(len(parts), 1 / len(parts))
    tried = [best, uniform]
    for start in (uniform, best) if len(parts) > 1 else ():
        found = optimize.minimize(
            *(loss, start),
            method="SLSQP",
            bounds=[(0, 1)] * len(parts),
            constraints={"type": "eq", "fun": lambda weights: weights.sum() - 1},
            options={"eps": STEP, "ftol": 1e-4},
        )
        kept = found.x.clip(0).round(3)
        tried.append(kept / kept.sum())
    chosen = {"best": best, "uniform": uniform, "weighted": min(tried, key=loss)}
    return {way: one.tolist() for way, one in chosen.items()} | {"balanced": balance(real, parts)}


def balance(real: SampleStatistics, parts: Sequence[GroupedStatistics]) -> Weights:
    """A linear programme: the least sum of t, where no class's share is off by more than its t."""
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


def mix(path: Path, data_dir: Path | None, doing: Callable[[str], None]) -> Found:
    """All ways for one finished run."""
    folder = RunFolder.open(path)
    if folder.result() is None:
        raise StoreError(f"{path}: the run is not finished; `remuda resume {path}` continues it")
    population = load_population(path, data_dir, conditional=True)
    data = population.config.data.model_copy(update={"reference": "test"})
    config = population.config.model_copy(update={"data": data})
    run = Run.prepare(config, population.dataset, folder=folder)
    if run.scorer is None or not run.scorer.extractor.classes:
        raise ConfigError(f"{path}: nothing that knows classes scores it; allowed: scored images")
    check_reference(run)
    parts = []
    for member in population.members:
        doing(f"sampling cell {member.cell}")
        samples = population.draw(member, CHOOSING, config.seed, "mixtures")
        if not bool(samples.isfinite().all()):
            raise ConfigError(f"{path}: cell {member.cell} makes samples that are not finite")
        parts.append(GroupedStatistics.of(run.scorer.extractor(samples)))
    doing("choosing weights")
    weights, related = choose(run.scorer.real, parts), family(population)
    weights |= {"average": related} if related else {}
    figures = {}
    for way, chosen in weights.items():
        doing(f"scoring {way}")
        ensemble = make_ensemble(population, chosen, run.labels, merged=way == "average")
        seed = stream_key(config.seed, 0, population.round, "mixtures")
        scores = score_ensemble(run, ensemble, [*FIGURES], samples=REPORTING, seed=seed)
        assert scores is not None  # there is an extractor
        figures[way] = {name: scores.values[name] for name in FIGURES}
    named = re.fullmatch(r"(.+)-seed-\d+", path.resolve().name)
    arm = str(path.resolve().parent / named[1]) if named else None
    return Found(str(path), arm, weights, figures)


def make_ensemble(
    population: Population, weights: Weights, labels: Labels | None, *, merged: bool
) -> Ensemble:
    """All members, also those without weight: ensembles of equal size share their noise."""
    states = [one.generator.state_dict() for one in population.members]
    if merged:
        related = [state for state, weight in zip(states, weights, strict=True) if weight > 0]
        states = [mean_tensors(related)] * len(states)
    members = tuple(
        Member(one.cell, weight, state, one.network)
        for one, weight, state in zip(population.members, weights, states, strict=True)
    )
    dataset = population.dataset
    network = population.config.network
    return Ensemble(network, dataset.shape, members, dataset.scaling, labels=labels)


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


def run_table(run: Found) -> str:
    lines = [run.path, _line("", _titles(), "weights", 11)]
    for way in WAYS:
        own, weights = run.figures.get(way), run.weights.get(way, [])
        cells = [format(own[one], form) if own else "–" for one, form in FIGURES.items()]
        lines.append(_line(way, cells, " ".join(f"{one:.2f}" for one in weights), 11))
    return "\n".join(lines)


def arm_tables(rows: Sequence[Versus]) -> str:
    cells: dict[tuple[str, str], list[str]] = {}
    for row, adjusted in zip(rows, holm([row.test.p for row in rows]), strict=True):
        form, by = "+" + FIGURES[row.figure], row.difference
        low, middle, high = (
            "–" if one is None else format(one, form) for one in (by.low, by.estimate, by.high)
        )
        mark = stars(adjusted) if row.seeds >= ENOUGH_SEEDS else ""
        own = cells.setdefault((row.arm, f"{row.way} ({row.seeds} seeds)"), [])
        own.append(f"{middle} [{low}, {high}] {row.test.p:.3f}{mark}")
    lines = []
    for arm in dict.fromkeys(arm for arm, _ in cells):
        lines += [f"{arm}: difference from best, [95 %], p", _line("", _titles(), "", 38)]
        lines += [_line(way, own, "", 38) for (of, way), own in cells.items() if of == arm]
    return "\n".join(lines)


def _titles() -> list[str]:
    return [METRICS[name].facts.title for name in FIGURES]


def _line(first: str, cells: Sequence[str], last: str, width: int) -> str:
    return f"  {first:20}{''.join(f'{cell:>{width}}' for cell in cells)}   {last}".rstrip()


def main(words: Sequence[str] | None = None) -> int:
    """The exit code: of the last folder that could not be used, if any; it is told in a line."""
    parser = argparse.ArgumentParser(prog="mixtures", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", metavar="RUN", nargs="+", type=Path, help="folder of a run")
    parser.add_argument("--json", type=Path, help="file to write the figures to")
    parser.add_argument("--data-dir", type=Path, help="folder with the data's files")
    arguments = parser.parse_args(words)
    torch.set_num_threads(1)
    found, code, console = [], 0, Console(stderr=True)
    say = partial(console.print, soft_wrap=True, markup=False, highlight=False)
    for number, path in enumerate(arguments.runs, 1):
        say(f"mixtures: {number}/{len(arguments.runs)} {path}")
        try:
            with console.status("loading") as status:  # nothing where there is no terminal
                found.append(mix(path, arguments.data_dir, status.update))
        except RemudaError as error:
            say(f"mixtures: {error}")
            code = error.exit_code
            continue
        print(run_table(found[-1]), flush=True)
    rows = compare(found)
    if rows:
        print(arm_tables(rows), flush=True)
    if arguments.json is not None:
        counts = {"choosing": CHOOSING, "reporting": REPORTING}
        record = {"runs": [*map(asdict, found)], "versus_best": [*map(asdict, rows)]}
        write_json(arguments.json, counts | record)
    return code


if __name__ == "__main__":
    sys.exit(main())
