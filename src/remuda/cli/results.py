"""The commands about runs: sample, score, status, runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from remuda.cli import analysis
from remuda.cli.options import DataDir, RunPath, Seed, own_command, quoted, whole_number
from remuda.cli.printing import say
from remuda.errors import ConfigError

app = typer.Typer()

Metrics = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Argument(
        metavar="METRIC",
        help="fid, fid_logits, is, tvd, accuracy (of labels), kid, pr (precision and recall), dc "
        "(density and coverage), modes (of points), memorisation (are samples copies?), tstr "
        "(train on samples, test on real items).  [default: those of the run's result; fid and "
        "kid with Inception]",
    ),
]
ScoredSamples = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option(
        "-n",
        "--count",
        metavar="N",
        parser=whole_number(20),
        help="Number of generated samples, at least 20.  [default: the run's score.final_samples]",
    ),
]
RealImages = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option(
        "--real",
        metavar="N",
        parser=whole_number(20),
        help="Largest number of real images, at least 20.  [default: 60000; 10000 with Inception]",
    ),
]
RealReference = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--reference",
        metavar="train|test",
        help="Compare with the items that the cells saw, or with those that no cell saw (held out, "
        "or the test split).  [default: the run's data.reference]",
    ),
]
ScoreSeed = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option(
        "--seed",
        metavar="N",
        parser=whole_number(0),
        help="The same seed gives the same samples.  [default: the run's]",
    ),
]
ExtractorName = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--extractor",
        metavar="NAME|FILE",
        help="labels (trained on the labels of the data), random (not trained), digits (28x28 grey "
        "images), cifar (32x32 colour images), inception or inception-64 (any images), or a "
        "classifier's .safetensors file.  [default: as in training]",
    ),
]
InceptionWeights = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        "--weights",
        metavar="FILE",
        help="Weights of Inception-v3, as .npz or .safetensors.  [default: from the data folder]",
    ),
]
ClassPicture = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help="Also draw the classes of data and samples, to a .png.",
    ),
]
PairPicture = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        "--pairs",
        metavar="FILE",
        help="With the metric memorisation: draw the samples that are closest to a training image, "
        "each above that image, to a .png.",
    ),
]


@app.command()
def sample(
    run: RunPath,
    count: Annotated[
        int,
        typer.Option(
            "-n", "--count", metavar="N", parser=whole_number(1), help="Number of samples."
        ),
    ] = 64,
    seed: Seed = 0,
    label: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="NAME|N",
            help="Only samples of this label.  [default: all labels, as often as in the data]",
        ),
    ] = None,
    output: Annotated[
        Path,
        typer.Option(
            "-o", "--output", metavar="FILE", help="A .png for a picture, a .npy for an array."
        ),
    ] = Path("samples.png"),
) -> None:
    """Draw samples from a finished run, as a picture or an array."""
    if output.suffix not in (".png", ".npy"):
        raise ConfigError(f"--output={output}: unknown kind of file; allowed: .png, .npy")
    from remuda.files import write_atomically
    from remuda.runs.loading import load
    from remuda.runs.pictures import sheet

    samples = load(run).sample(count, seed, label)
    if output.suffix == ".png":
        content = sheet(samples)
    else:
        import io

        import numpy as np

        buffer = io.BytesIO()
        np.save(buffer, samples, allow_pickle=False)
        content = buffer.getvalue()
    write_atomically(output, content)
    say(f"{count} samples in {output}")


@app.command()
def score(
    run: RunPath,
    metrics: Metrics = None,
    count: ScoredSamples = None,
    real: RealImages = None,
    reference: RealReference = None,
    seed: ScoreSeed = None,
    extractor: ExtractorName = None,
    weights: InceptionWeights = None,
    output: ClassPicture = None,
    pairs: PairPicture = None,
    data_dir: DataDir = None,
) -> None:
    """Score a finished run against the data it was trained on.

    Without options the scores are those that the run ended with. Points with known modes are
    scored by how well the samples cover them.
    """
    if output is not None:
        analysis.check_png(output)
    if pairs is not None:
        _check_pairs(run, pairs, metrics or [])
    from remuda import api
    from remuda.cli.view import scoring

    with scoring() as progress:
        scores = api.score(
            run,
            metrics or (),
            samples=count,
            real=real,
            reference=reference,
            seed=seed,
            extractor=extractor,
            weights=weights,
            data_dir=data_dir,
            progress=progress,
            say=progress.said,
        )
    # In the order they were asked for.
    for line in [*scores.lines(metrics), *analysis.coverage_by_cell(run, scores)]:
        say(line)
    if output is not None:
        analysis.draw_classes(run, scores, output)
    if pairs is not None and scores.pairs is not None:
        from remuda.files import write_atomically
        from remuda.runs.pictures import pair_sheet

        write_atomically(pairs, pair_sheet(scores.pairs))
        say("", f"closest pairs: {pairs}")


def _check_pairs(run: Path, pairs: Path, metrics: list[str]) -> None:
    """Before the work begins: there will be pairs of images to draw."""
    if pairs.suffix != ".png":
        raise ConfigError(f"--pairs={pairs}: unknown kind of file; allowed: .png")
    if "memorisation" not in metrics:
        raise ConfigError(
            f"--pairs={pairs}: draws what the metric memorisation finds; allowed: "
            f"`remuda score {run} memorisation --pairs {pairs}`"
        )
    from remuda.runs.loading import load

    if len(load(run).shape) == 1:
        raise ConfigError(
            f"--pairs={pairs}: draws images, and {run} generates points; allowed: runs on images "
            f"(`remuda tsne {run}` draws points)"
        )


@app.command()
def status(run: RunPath) -> None:
    """Show the workers of a run: where they are and what they do."""
    import dataclasses
    import time

    from rich.console import Console

    from remuda.cli.tables import workers_line, workers_table
    from remuda.parallel.protocol import WorkerStatus
    from remuda.runs.store import RunFolder

    found = RunFolder.open(run).status()
    if found is None:
        command = f"{own_command()} runs {quoted(run.absolute().parent)}"
        say(f"{run} is not being trained now; `{command}` shows how far it got")
        return
    age = max(0.0, time.time() - found.time)
    workers = [
        dataclasses.replace(worker, heard=worker.heard + age)
        for worker in (WorkerStatus.from_json(one.model_dump()) for one in found.workers)
    ]
    say(f"{found.completed} of {found.rounds} rounds complete, term {found.epoch}")
    console = Console()
    console.print(workers_line(workers))
    console.print(workers_table(workers, console.width))


@app.command()
def runs(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="The folder that holds the runs.")
    ] = Path("runs"),
) -> None:
    """List the runs in a folder: state, rounds, score."""
    from remuda.runs.store import find_runs
    from remuda.runs.summary import TITLES, summarise

    found = find_runs(folder)
    if not found:
        say(f"no runs in {folder}; start one with: {own_command()} train")
        return
    from remuda.cli.tables import plain_table, print_table

    table = plain_table(*TITLES)
    for run in found:
        table.add_row(*summarise(run))
    print_table(table)
