"""Tables 2 to 4 of GAP from the runs of a comparison: GAM-II under judges that met nobody, and AIS.

    python examples/claims.py gap-mnist        trains the runs (Table 5: their inception scores),
    python examples/gap_tables.py runs/gap-mnist [--ais 16]    and this does the rest

For every seed it trains a third run per kind of network, of GANs that never met any other: the
judges. A generator's score is the share of its samples that they call real, so that all arms are
judged by the same discriminators. Where the comparison has arms `dcgan` and `gran`, two GANs of
each are trained on for as many rounds as `--more` says, swapping (GAP_F4) and alone. Writes
tables.json, tables.md and figures/gam.png into the folder. What is done already is read from there.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reuse import trained_config

from remuda.analysis.battle import Battle, fight
from remuda.analysis.figures import COLOURS, INK, new_figure, plain_axes, png
from remuda.analysis.likelihood import Estimate
from remuda.compare.plan import Plan, read_plan
from remuda.compare.statistics.significance import significance
from remuda.config import Config, validate
from remuda.errors import ConfigError, RemudaError
from remuda.metrics.ais import AisSettings
from remuda.metrics.gam import helps

JUDGES_SEED = 1000  # added to that of the arms
KINDS = ("dcgan", "gran")  # arms of GANs that never meet, in which judges are trained as well
SAMPLES = 2000
PAIRS = (
    ("dcgan", "gap-d4"),
    ("gran", "gap-g4"),
    ("dcgan", "gap-c4"),
    ("gran", "gap-c4"),
    ("trained-on", "gap-f4"),
)


@dataclass(frozen=True)
class Runs:
    """The run folders of one seed, by arm, and those of the judges."""

    arms: Mapping[str, Path]
    judges: Sequence[Path]


def runs_of(folder: Path, plan: Plan, seed: int, more: int) -> Runs:
    """Those of the comparison; the others are trained where they are not there yet."""
    arms = {arm.name: folder / "runs" / f"{arm.name}-seed-{seed}" for arm in plan.arms}
    kinds = [name for name in KINDS if name in arms]
    if not kinds:
        raise ConfigError(
            f"{folder}: judges are trained as one of its arms, and it has none of {KINDS}"
        )
    judges = []
    for name in kinds:
        path = folder / "judges" / f"{name}-seed-{seed}"
        trained_config(plan.arm(name).settings(seed + JUDGES_SEED, path))
        judges.append(path)
    if more and len(kinds) == len(KINDS) and "gap-c4" in arms:
        for name, swap in (("trained-on", "none"), ("gap-f4", "discriminators")):
            path = folder / "further" / f"{name}-seed-{seed}"
            trained_config(_further(plan.arm("gap-c4").settings(seed, path), arms, more, swap))
            arms[name] = path
    return Runs(arms, judges)


def _further(config: Config, arms: Mapping[str, Path], rounds: int, swap: str) -> Config:
    """Two GANs of each kind from those that trained alone, in the order of the hybrid's members."""
    values = config.model_dump(mode="json")
    values["rounds"] = rounds
    values["method"]["swap"] = swap
    # Cells 0 and 2 of either have the Gaussian prior that the hybrid's have.
    values["init_from"] = [f"{arms[kind]}:{cell}" for cell in (0, 2) for kind in KINDS]
    values["training"]["input_noise"] = []  # they are past it
    return validate(values)


def judged(runs: Runs) -> dict[str, dict[str, list[float]]]:
    """By arm, the average and worst share of every member's samples that the judges call real."""
    battle: Battle = fight(list(runs.arms.values()), judges=runs.judges, samples=SAMPLES)
    return {
        arm: {
            "average": [one.average for one in side.scores],
            "worst": [one.worst for one in side.scores],
        }
        for arm, side in zip(runs.arms, battle.sides, strict=False)  # the judges come last
    }


def inception_score(path: Path) -> float | None:
    values: dict[str, float] = json.loads((path / "result.json").read_text())["scores"]["values"]
    return values.get("is")


def likelihood(path: Path, examples: int) -> dict[str, float]:
    settings = AisSettings(variance=0.025, chains=4, steps=200)
    found = Estimate(path, examples=examples, simulated=0, settings=settings).run()
    return {"mean": found.mean, "error": found.error}


def row(folder: Path, plan: Plan, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Everything about one seed; kept beside the runs."""
    kept = folder / "tables" / f"seed-{seed}.json"
    asked = {"more": options.more, "ais": options.ais}
    if kept.is_file():
        found: dict[str, Any] = json.loads(kept.read_text())
        if found.get("asked") == asked:
            return found
    runs = runs_of(folder, plan, seed, options.more)
    made: dict[str, Any] = {
        "seed": seed,
        "asked": asked,
        "gam": judged(runs),
        "is": {arm: inception_score(path) for arm, path in runs.arms.items()},
    }
    if options.ais:
        named = [arm for arm in ("dcgan", "gap-d4") if arm in runs.arms]
        made["ais"] = {arm: likelihood(runs.arms[arm], options.ais) for arm in named}
    kept.parent.mkdir(exist_ok=True)
    kept.write_text(json.dumps(made, indent=2) + "\n")
    return made


ABOUT = """\
A figure is the share of {samples:,} samples that the discriminators of runs which met none of these
GANs call real: the mean over those judges, and the least. Higher is better. In the second and third
column every seed gives the least and the most over its members, as the article does; shown is their
mean over the seeds. The last two columns have a figure per seed."""


def page(rows: Sequence[Mapping[str, Any]], command: str) -> str:
    """The tables as Markdown."""
    seeds = [one["seed"] for one in rows]
    arms = list(rows[0]["gam"])
    lines = [
        "# GAM-II under judges that met nobody, likelihood and inception scores",
        "",
        f"`{command}`, seeds {seeds[0]} to {seeds[-1]}.",
        "",
        ABOUT.format(samples=SAMPLES).replace("\n", " "),
        "",
        "| arm | average, min–max | worst, min–max | average of all members | IS, chosen member |",
        "|---|---|---|---|---|",
        *(_arm(rows, arm) for arm in arms),
        "",
        "| pair | by the article's rule, every seed | difference of averages | p, sign-flip |",
        "|---|---|---|---|",
        *(_pair(rows, one, other) for one, other in PAIRS if {one, other} <= set(arms)),
    ]
    if all("ais" in one for one in rows):
        lines += ["", "| arm | log p(x) by AIS, nats, every seed | mean |", "|---|---|---|"]
        for arm in rows[0]["ais"]:
            found = [one["ais"][arm]["mean"] for one in rows]
            each = "  ".join(f"{value:.1f}" for value in found)
            lines.append(f"| {arm} | {each} | {statistics.mean(found):.1f} |")
    lines += ["", "![every member under the judges](figures/gam.png)"]
    return "\n".join(lines) + "\n"


def _arm(rows: Sequence[Mapping[str, Any]], arm: str) -> str:
    of_arm = [one["gam"][arm] for one in rows]
    average, worst = (
        "–".join(
            f"{statistics.mean(bound(part[key]) for part in of_arm):.3f}" for bound in (min, max)
        )
        for key in ("average", "worst")
    )
    means = "  ".join(f"{statistics.mean(part['average']):.3f}" for part in of_arm)
    scores = [one["is"][arm] for one in rows]
    shown = "  ".join("–" if score is None else f"{score:.2f}" for score in scores)
    return f"| {arm} | {average} | {worst} | {means} | {shown} |"


def _pair(rows: Sequence[Mapping[str, Any]], single: str, group: str) -> str:
    one, other = (
        [row["gam"][arm]["average"] for row in rows] for arm in (single, group)
    )  # by seed, of every member
    words = ", ".join(helps(alone, swapped) for alone, swapped in zip(one, other, strict=True))
    means = [[statistics.mean(members) for members in arm] for arm in (other, one)]
    by = statistics.mean(means[0]) - statistics.mean(means[1])
    p = significance(*means, paired=True, lower_is_better=False).p
    return f"| {group} beside {single} | {words} | {by:+.3f} | {p:.3f} |"


def picture(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Every member of every seed a dot, by arm."""
    arms = list(rows[0]["gam"])
    figure = new_figure(1.3 * len(arms) + 1.2, 3.8)
    axes = figure.add_subplot()
    for place, arm in enumerate(arms):
        for number, one in enumerate(rows):
            values = one["gam"][arm]["average"]
            across = [place + 0.12 * (number - (len(rows) - 1) / 2)] * len(values)
            axes.plot(across, values, "o", ms=4, alpha=0.7, color=COLOURS[place % len(COLOURS)])
        mean = statistics.mean(value for one in rows for value in one["gam"][arm]["average"])
        axes.plot([place - 0.35, place + 0.35], [mean, mean], color=INK, lw=1.5)
    axes.set_xticks(range(len(arms)), arms)
    axes.set_ylabel("share called real by judges that met nobody")
    plain_axes(axes)
    return png(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path, help="of the comparison")
    parser.add_argument("--more", type=int, default=0, help="rounds of fine-tuning; 0: none")
    parser.add_argument("--ais", type=int, default=0, help="held-out images for AIS; 0: none")
    options = parser.parse_args()
    plan = read_plan(options.folder)
    rows = []
    for seed in plan.all_seeds:
        print(f"seed {seed}", flush=True)
        rows.append(row(options.folder, plan, seed, options))
    words = f"--more {options.more} --ais {options.ais}"
    text = page(rows, f"python examples/gap_tables.py runs/{options.folder.name} {words}")
    (options.folder / "tables.json").write_text(json.dumps(rows, indent=2) + "\n")
    (options.folder / "tables.md").write_text(text)
    (options.folder / "figures").mkdir(exist_ok=True)
    (options.folder / "figures" / "gam.png").write_bytes(picture(rows))
    print(text)


if __name__ == "__main__":
    try:
        main()
    except RemudaError as error:
        raise SystemExit(f"gap_tables: {error}") from None
