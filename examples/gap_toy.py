"""Figures 3 and 4 of GAP: do four GANs that swap discriminators cover more modes than single ones?

For every seed four members train with swapping and four without, with the same settings, the same
data and equal updates per GAN. Counted is how many of the known modes a generator covers: at least
a quarter of their equal share of its samples, within three standard deviations.

    python examples/gap_toy.py r15 --seeds 5 --out runs/gap-toy-r15
    python examples/gap_toy.py mog25 --seeds 5 --out runs/gap-toy-mog25 [KEY=VALUE ...]

Seeds that are done already are read from the folder. Writes results.json and scatter.png there, and
prints p of a paired t-test over the seeds, not corrected for looking at several measures.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from reuse import trained
from scipy.stats import ttest_rel

from remuda import Ensemble, load
from remuda.analysis.figures import Panel, scatters
from remuda.config import load_config
from remuda.data import load_dataset
from remuda.metrics.coverage import REACH, Coverage, mode_coverage

SAMPLES = 2500
ARMS = {"single": "none", "gap": "discriminators"}


def members(preset: str, arm: str, seed: int, out: Path, settings: Sequence[str]) -> Ensemble:
    """All four members of one arm of one seed."""
    own = [f"seed={seed}", f"data.seed={seed}", f"method.swap={ARMS[arm]}"]
    own.append("method.ensemble=uniform")
    return load(trained(preset, [*settings, *own], out / f"{arm}-seed{seed}"))


def alone(ensemble: Ensemble, place: int) -> Ensemble:
    return replace(ensemble, members=(replace(ensemble.members[place], weight=1.0),))


def covered(ensemble: Ensemble, preset: str, seed: int) -> tuple[list[Coverage], Coverage]:
    """Of every member, and of their mixture."""
    modes = load_dataset(load_config(preset, [f"data.seed={seed}"]).data).modes
    assert modes is not None
    everyone = [alone(ensemble, place) for place in range(len(ensemble.members))]
    found = [
        mode_coverage(torch.from_numpy(one.sample(SAMPLES, seed)), modes.centres, modes.spread)
        for one in [*everyone, ensemble]
    ]
    return found[:-1], found[-1]


def summary(rows: Sequence[dict[str, Any]], measure: str) -> str:
    values = [row[measure] for row in rows]
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):6.2f} ± {spread:4.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("data", choices=["r15", "mog25"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE")
    options = parser.parse_intermixed_args()
    preset = f"gap-toy-{options.data}"
    rows: dict[str, list[dict[str, Any]]] = {arm: [] for arm in ARMS}
    for seed in range(options.seeds):
        for arm in ARMS:
            ensemble = members(preset, arm, seed, options.out, options.settings)
            everyone, mixture = covered(ensemble, preset, seed)
            counts = [one.covered for one in everyone]
            rows[arm].append(
                {
                    "seed": seed,
                    "members": counts,
                    "member": statistics.mean(counts),
                    "best": max(counts),
                    "worst": min(counts),
                    "mixture": mixture.covered,
                    "hit": statistics.mean(one.hit for one in everyone),
                    "quality": statistics.mean(one.quality for one in everyone),
                    "mixture_quality": mixture.quality,
                    "mixture_kl": mixture.divergence,
                }
            )
            print(f"seed {seed}, {arm:6}: modes covered {counts}, mixture {mixture.covered}")
    (options.out / "results.json").write_text(json.dumps(rows, indent=2) + "\n")
    draw(preset, options.out, rows)
    print(f"\n{preset}, {options.seeds} seeds, mean ± standard deviation")
    print(f"{'':28}{'single':>16}{'GAP4':>16}{'p':>9}")
    for measure, words in (
        ("member", "modes covered, a member"),
        ("best", "modes covered, the best of 4"),
        ("worst", "modes covered, the worst"),
        ("mixture", "modes covered, mixture of 4"),
        ("hit", "modes hit, a member"),
        ("quality", "high-quality share"),
        ("mixture_kl", "KL of the mixture's modes"),
    ):
        one, other = ([row[measure] for row in rows[arm]] for arm in ARMS)
        chance = ttest_rel(one, other).pvalue if len(one) > 1 else float("nan")
        print(
            f"{words:28}{summary(rows['single'], measure):>16}{summary(rows['gap'], measure):>16}"
            f"{chance:9.4f}"
        )


def draw(preset: str, out: Path, rows: dict[str, list[dict[str, Any]]]) -> None:
    """Data, the best single GAN and the best GAP member of the first seed, and the GAP mixture."""
    dataset = load_dataset(load_config(preset, ["data.seed=0"]).data)
    assert dataset.modes is not None
    points = dataset.scaling.to_raw(dataset.items[:]).numpy()
    panels = [Panel("data", points, f"{len(points)} training points")]
    for arm, name in (("single", "best single GAN"), ("gap", "best member of GAP4")):
        counts = rows[arm][0]["members"]
        best = alone(load(out / f"{arm}-seed0"), counts.index(max(counts)))
        note = f"{max(counts)} of {len(dataset.modes.centres)} modes covered"
        panels.append(Panel(name, best.sample(SAMPLES, 0), note))
    reach = REACH * dataset.modes.spread
    (out / "scatter.png").write_bytes(scatters(panels, dataset.modes.centres.numpy(), reach))


if __name__ == "__main__":
    main()
