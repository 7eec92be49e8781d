"""The commands that analyse runs: gam, ais, tsne, curves. Thin; the work is in `analysis`.

As in `cli`, what needs torch or matplotlib is imported inside the command that needs it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from remuda.cli.options import DataDir, RunPath, Seed, whole_number
from remuda.cli.printing import say
from remuda.errors import ConfigError, RemudaError

if TYPE_CHECKING:
    from remuda.analysis.battle import Battle
    from remuda.runs.scoring import Scores

BLIND = 0.5  # a judge that calls more than this share of real items generated is named

app = typer.Typer()

RunPaths = Annotated[list[Path], typer.Argument(metavar="RUN", help="Run folders.")]
Output = Annotated[
    Path, typer.Option("-o", "--output", metavar="FILE", help="Where to write the .png.")
]

Exclusion = Annotated[
    str,
    typer.Option(
        metavar="seen|block",
        help="Which discriminators may not judge a generator: those it has seen, or all of "
        "its own run (block).",
    ),
]
Tolerance = Annotated[
    float,
    typer.Option(metavar="X", min=0, help="A GAM duel is fair if |ln r_test| is below this."),
]
Temperatures = Annotated[
    int,
    typer.Option(
        metavar="N",
        parser=whole_number(1),
        help="Temperatures between prior and posterior; more give a tighter bound.",
    ),
]
Chains = Annotated[
    int, typer.Option(metavar="N", parser=whole_number(1), help="Chains per example.")
]
Variance = Annotated[
    float,
    typer.Option(
        metavar="X", help="Variance of the Gaussian noise on the output (images in [0, 1])."
    ),
]
Simulated = Annotated[
    int,
    typer.Option(
        metavar="N",
        parser=whole_number(0),
        help="Examples sampled from the model itself, for the BDMC gap; 0 for none.",
    ),
]


Judges = Annotated[
    Optional[list[Path]],  # noqa: UP045
    typer.Option(
        "--judges",
        metavar="RUN",
        help="Only the discriminators of this run judge, so that all generators are judged by the "
        "same ones; may be given several times.",
    ),
]


@app.command()
def gam(
    paths: RunPaths,
    judges: Judges = None,
    exclusion: Exclusion = "seen",
    tolerance: Tolerance = 0.1,
    count: Annotated[
        int,
        typer.Option(
            "-n",
            "--count",
            metavar="N",
            parser=whole_number(1000),
            help="Number of samples per generator, at least 1000.",
        ),
    ] = 2000,
    seed: Seed = 0,
    output: Output = Path("battle.png"),
    data_dir: DataDir = None,
) -> None:
    """Let the GANs of two or more runs judge each other (GAM, GAM-II).

    A generator's score is the share of its samples that discriminators which it never trained
    against take for real; higher is better.
    """
    from remuda.config import suggest

    allowed = ("seen", "block")
    if exclusion not in allowed:
        hint = suggest(exclusion, allowed) or ";"
        raise ConfigError(f"--exclusion={exclusion}: unknown{hint} allowed: {', '.join(allowed)}")
    check_png(output)
    from rich.console import Console

    with Console(stderr=True).status("loading") as status:
        from remuda.analysis.battle import fight
        from remuda.cli.tables import verbatim

        found = fight(
            paths,
            judges=judges or [],
            exclusion="seen" if exclusion == "seen" else "block",
            tolerance=tolerance,
            samples=count,
            seed=seed,
            data_dir=data_dir,
            progress=lambda message: status.update(verbatim(message)),
        )
        from remuda.analysis.figures import battle

        shares, allowed_judges = found.shares.numpy(), found.allowed.numpy()
        png = battle(shares, allowed_judges, found.judges, found.names, _legend(found))
    _print_battle(found)
    _write(output, png)


def _legend(found: Battle) -> list[str]:
    """What letters stand for, where the matrix calls runs by letters."""
    return [f"{side.label}: {side.name}" for side in found.sides if side.label != side.name]


def _print_battle(found: Battle) -> None:
    from remuda.cli.tables import plain_table, print_table

    say(
        f"share of {found.samples} samples that a discriminator (row) calls real, by generator "
        "(column); in brackets: may not judge"
    )
    table = plain_table("", *found.names, numbers=True)
    for name, shares, allowed in zip(found.judges, found.shares, found.allowed, strict=True):
        cells = zip(shares.tolist(), allowed.tolist(), strict=True)
        table.add_row(name, *(f"{value:.3f}" if may else f"({value:.3f})" for value, may in cells))
    print_table(table)
    for line in _legend(found):
        say(line)
    by = f", which are those of {' and '.join(found.judging)}" if found.judging else ""
    say("", f"GAM-II, exclusion {found.exclusion}: average and worst over the judges{by}")
    table = plain_table(
        "run", "members", "avg min–max", "worst min–max", "avg of each member", numbers=True
    )
    for side in found.sides:
        worsts = [one.worst for one in side.scores]
        table.add_row(
            side.name,
            str(len(side.places)),
            _range(side.averages),
            _range(worsts),
            " ".join(f"{value:.3f}" for value in side.averages),
        )
    print_table(table)
    blind = [
        f"{name} {error:.0%}"
        for name, error in zip(found.judges, found.real_errors, strict=True)
        if error > BLIND
    ]
    if blind:
        say(f"judges not to be trusted, as they call most real items generated: {', '.join(blind)}")
    for beside in found.helped():
        say(f"{beside.group} beside {beside.singles}: {beside.outcome}")
        say(f"of {beside.judges} judges of both, {beside.prefer} call more of {beside.group} real")
    if any(one.judges == 0 for side in found.sides for one in side.scores):
        say("nan: every judge has met the generator; allowed: more runs")
    duels = found.duels()
    if duels:
        say("", f"GAM between the best members; errors on {found.real}")
    for one, other, result in duels:
        winner = {None: "a tie", 1: f"{one} wins", 2: f"{other} wins"}[result.winner]
        say(
            f"{one} against {other}: r_test {result.test_ratio:.3f}, "
            f"r_sample {result.sample_ratio:.3f}: {winner}"
        )


def _range(values: list[float]) -> str:
    return f"{min(values):.3f}–{max(values):.3f}"


@app.command()
def ais(
    run: RunPath,
    count: Annotated[
        int,
        typer.Option(
            "-n",
            "--count",
            metavar="N",
            parser=whole_number(1),
            help="Number of held-out examples.",
        ),
    ] = 50,
    steps: Temperatures = 1000,
    chains: Chains = 16,
    variance: Variance = 0.025,
    simulated: Simulated = 10,
    seed: Seed = 0,
    data_dir: DataDir = None,
) -> None:
    """Estimate the log-likelihood of held-out data (AIS), in nats.

    The estimate is a lower bound in expectation. The BDMC gap, measured on samples of the model
    itself, shows how loose it may be.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TimeRemainingColumn

    console = Console(stderr=True)
    with console.status("loading"):
        from remuda.analysis.likelihood import Estimate
        from remuda.cli.view import duration
        from remuda.metrics.ais import AisSettings

        estimate = Estimate(
            run,
            examples=count,
            simulated=simulated,
            settings=AisSettings(variance=variance, chains=chains, steps=steps),
            seed=seed,
            data_dir=data_dir,
        )
        seconds = estimate.seconds()
    console.print(f"about {duration(seconds)}", highlight=False)
    columns = ("annealing", BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("ais", total=estimate.steps)
        found = estimate.run(lambda done, _: bar.update(task, completed=done))
    for line in found.lines():
        say(line)


@app.command()
def tsne(
    paths: RunPaths,
    count: Annotated[
        int,
        typer.Option(
            "-n",
            "--count",
            metavar="N",
            parser=whole_number(10),
            help="Number of samples per run, and of data items; at least 10.",
        ),
    ] = 500,
    seed: Seed = 0,
    output: Output = Path("tsne.png"),
    data_dir: DataDir = None,
) -> None:
    """Draw data and samples of finished runs in one plane (t-SNE).

    Two-dimensional points are drawn as they are.
    """
    check_png(output)
    from rich.console import Console

    with Console(stderr=True).status("embedding"):
        from remuda.analysis.overlays import picture

        png, shown = picture(paths, count=count, seed=seed, data_dir=data_dir)
    say(shown)
    _write(output, png)


@app.command()
def curves(paths: RunPaths, output: Output = Path("curves.png")) -> None:
    """Draw discriminator costs on training and held-out data.

    If the spread between the two shrinks with more members, they overfit less.
    """
    check_png(output)
    import numpy as np

    from remuda.analysis.curves import Costs, read_costs
    from remuda.analysis.figures import Curve, learning_curves
    from remuda.analysis.naming import short_names
    from remuda.cli.tables import plain_table, print_table

    found: dict[str, Costs] = {}
    unread: dict[str, RemudaError] = {}
    for name, path in zip(short_names(paths), paths, strict=True):
        try:
            found[name] = read_costs(path)
        except RemudaError as error:
            unread[name] = error
    if not found:
        raise next(iter(unread.values()))
    table = plain_table(
        "run",
        "members",
        "rounds",
        "train",
        "valid",
        "spread",
        "averaged",
        "late gap",
        "by member",
        numbers=True,
    )
    for name, costs in found.items():
        table.add_row(
            name,
            str(len(costs.train)),
            str(len(costs.rounds)),
            f"{np.nanmean(costs.train):.4f}",
            f"{np.nanmean(costs.validation):.4f}",
            f"{costs.spread:.4f}",
            f"{costs.averaged_spread:.4f}",
            f"{costs.late_gap:+.4f}",
            " ".join(f"{value:.4f}" for value in costs.spreads),
        )
    print_table(table)
    for name, problem in unread.items():
        say(f"{name} is left out: {' '.join(problem.lines)}")
    drawn = [
        Curve(name, costs.rounds, costs.train, costs.validation) for name, costs in found.items()
    ]
    _write(output, learning_curves(drawn))


# ---------------------------------------------------------------------------- parts of `score`


def coverage_by_cell(run: Path, scores: Scores) -> list[str]:
    """How many modes every cell alone covered at the end of a run, where modes are known."""
    if not scores.mode_histogram:
        return []
    from remuda.runs.store import RunFolder

    result = RunFolder.open(run).result()
    cells = result.modes_by_cell if result else None
    if not cells or len(cells) < 2:
        return []
    covered = " ".join(str(one.values.get("modes_covered")) for one in cells.values())
    return [f"cells alone     cover {covered}"]


def draw_classes(run: Path, scores: Scores, output: Path) -> None:
    """A picture of how often each class appears, in the data and in the samples."""
    from remuda.analysis.figures import class_bars

    if not scores.class_histogram:
        raise ConfigError(
            f"--output={output}: draws classes, and {scores.extractor or 'points'} have none; "
            f"allowed: --extractor labels, digits or cifar (`remuda tsne {run}` draws points)"
        )
    made = [count / scores.samples for count in scores.class_histogram]
    distance = sum(abs(a - b) for a, b in zip(made, scores.real_class_shares, strict=True)) / 2
    title = f"{run.resolve().name}: TVD {distance:.3f}"
    names = [str(number) for number in range(len(made))]
    _write(output, class_bars(names, scores.real_class_shares, made, title))


# ---------------------------------------------------------------------------- printing


def check_png(output: Path) -> None:
    """Before the work begins: only .png files can be written, and only with matplotlib."""
    from remuda.analysis.extras import require

    require("matplotlib", "figures")
    if output.suffix != ".png":
        raise ConfigError(f"--output={output}: unknown kind of file; allowed: .png")


def _write(output: Path, png: bytes) -> None:
    from remuda.files import write_atomically

    write_atomically(output, png)
    say("", f"picture: {output}")
