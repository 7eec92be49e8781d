"""The commands that train: train, resume."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from remuda.cli import cluster
from remuda.cli.options import (
    Arguments,
    DataDir,
    RunPath,
    load_arguments,
    own_command,
    quoted,
    whole_number,
)
from remuda.cli.printing import say
from remuda.errors import ConfigError, RemudaError

if TYPE_CHECKING:
    from remuda.cli.view import View
    from remuda.config import Config
    from remuda.runs.outcome import Result

app = typer.Typer()

# By the program that a worker is a fork of; the script `remuda` imports no more.
_IMPORTED = ("remuda.cli",)

EngineName = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar="NAME",
        help="Where the cells train: local (in this process), process (in worker processes on this "
        "machine), mpi (in MPI ranks, on one or more machines; starts mpiexec) or auto (mpi under "
        "mpiexec, process if there is more than one core and cell, otherwise local). The weights "
        "are the same on all of them.",
    ),
]
Workers = Annotated[
    str,
    typer.Option("--workers", metavar="N|auto", help="Number of workers; auto is cores / threads."),
]
MpiExec = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--mpiexec",
        metavar="COMMAND",
        help="With --engine mpi: the launcher and its flags, e.g. 'mpiexec --with-ft ulfm --host "
        "a,b'.",
    ),
]
Restarts = Annotated[
    int,
    typer.Option(
        "--restarts",
        metavar="N",
        parser=whole_number(0),
        help="With --engine mpi: how many times to restart a lost job.",
    ),
]
Stuck = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option(
        "--stuck",
        metavar="SECONDS",
        parser=whole_number(1),
        help="Give the cells of a worker to another one if its trainer has not moved for this "
        "long, and much longer than usual.  [default: it is shown as delayed, and waited for]",
    ),
]
Plain = Annotated[
    bool, typer.Option("--plain", help="Print one line per round instead of a live table.")
]
Portable = Annotated[
    bool,
    typer.Option(
        "--portable",
        help="The same weights on all x86-64 machines, at 1.2 to 2 times the CPU time; short for "
        "portable=true.",
    ),
]


@app.command()
def train(
    arguments: Arguments = None,
    data_dir: DataDir = None,
    engine: EngineName = "auto",
    workers: Workers = "auto",
    mpiexec: MpiExec = None,
    restarts: Restarts = 3,
    stuck: Stuck = None,
    plain: Plain = False,
    portable: Portable = False,
) -> None:
    """Train a population of GANs.

    For example: `remuda train`, or `remuda train cellular-mnist grid=3x3 rounds=20`. Training ends
    with scores, a picture of samples and what to try next. Ctrl-C loses nothing: `remuda resume`
    continues the run, and the weights come out as if it had never stopped. SIGUSR1 does the same
    with exit code 75, which tells a batch system to start the run again.
    """
    from remuda.parallel.engines import choose_engine
    from remuda.runs.portable import ensure_portable

    count = check_engine(engine, workers)
    if portable:
        arguments = [*(arguments or []), "portable=true"]
    session = cluster.join_job(engine, lambda: load_arguments(arguments, data_dir))
    config = load_arguments(arguments, data_dir)
    ensure_portable(config)
    cluster.show_life(session, config.run.dir)
    if engine == "mpi" and session is None:
        from remuda.runs.store import make_run_folder, new_path

        path = new_path(config).absolute()
        make_run_folder(path)  # so that no other run takes this name
        run_dir = f"run.dir={json.dumps(str(path), ensure_ascii=False)}"
        cluster.start_job(
            ["train", *(arguments or []), run_dir],
            path,
            config,
            data_dir,
            workers=count,
            mpiexec=mpiexec,
            restarts=restarts,
            stuck=stuck,
        )
    carrier = choose_engine(engine, count, session, stuck)
    carrier.start_early(config, _IMPORTED)
    # A launcher's pipe may look like a terminal, but a table cannot be redrawn through it.
    with _showing_progress(plain or session is not None) as view:
        from remuda.parallel import training

        result = training.train(config, view, engine=carrier)
    _print_result(result)


@app.command()
def resume(
    run: RunPath,
    data_dir: DataDir = None,
    engine: EngineName = "auto",
    workers: Workers = "auto",
    mpiexec: MpiExec = None,
    restarts: Restarts = 3,
    stuck: Stuck = None,
    plain: Plain = False,
) -> None:
    """Continue an interrupted run.

    The result is the same as without the interruption, on any engine and number of workers.
    """
    from remuda.config import read_config
    from remuda.parallel.engines import choose_engine
    from remuda.runs.portable import ensure_portable

    def read() -> Config:
        return read_config(run / "config.yaml")

    count = check_engine(engine, workers)
    session = cluster.join_job(engine, read)
    config = None
    with suppress(RemudaError):  # whoever opens the run says what is wrong
        config = read()
    if config is not None:
        ensure_portable(config)
    cluster.show_life(session, run)
    if engine == "mpi" and session is None:
        from remuda.runs.store import RunFolder

        folder = RunFolder.open(run)
        if folder.result() is None:
            path = run.absolute()
            cluster.start_job(
                ["resume", str(path)],
                path,
                folder.config(),
                data_dir,
                workers=count,
                mpiexec=mpiexec,
                restarts=restarts,
                stuck=stuck,
            )
    carrier = choose_engine(engine, count, session, stuck)
    if config is not None:
        carrier.start_early(config, _IMPORTED)
    with _showing_progress(plain or session is not None) as view:
        from remuda.parallel import training

        result = training.resume(run, view, data_dir, engine=carrier)
    if result is None:
        say(f"{run} is finished; nothing to resume. Its ensemble is in {run / 'ensemble'}")
    else:
        _print_result(result)


def check_engine(engine: str, workers: str) -> int | None:
    """The number of workers asked for; None for auto."""
    from remuda.parallel.engines import engine_names

    if engine not in engine_names():
        from remuda.config import suggest

        hint = suggest(engine, engine_names()) or ";"
        raise ConfigError(f"--engine={engine}: unknown{hint} allowed: {', '.join(engine_names())}")
    if workers == "auto":
        return None
    if not workers.isdecimal() or int(workers) < 1:
        raise ConfigError(f"--workers={workers}: allowed: auto, or a whole number, at least 1")
    if engine == "local" and int(workers) > 1:
        raise ConfigError(f"--workers={workers}: --engine=local has one worker; allowed: 1, auto")
    return int(workers)


@contextmanager
def _showing_progress(plain: bool) -> Iterator[View]:
    """A view of the run, which survives being interrupted."""
    from rich.console import Console

    from remuda.cli.interruption import interruptible, interruptible_start

    with interruptible_start(), Console(stderr=True).status("loading torch"):
        from remuda.cli.view import make_view

        view = make_view(Console(), plain)
    with interruptible(view), view:
        yield view


def _print_result(result: Result) -> None:
    from remuda.cli.tables import costs_lines
    from remuda.cli.view import duration
    from remuda.config.yaml_text import dump_line

    command, path = own_command(), quoted(result.path)
    say("", f"trained in {duration(result.seconds)}")
    for line in result.scores.lines() if result.scores else ["not scored: score.extractor=none"]:
        say(line)
    if result.acceptance:
        shares = ", ".join(f"{role}s {share:.0%}" for role, share in result.acceptance.items())
        say(f"offspring kept  {shares}")
    if result.evolved_genes:
        words = " ".join(
            f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={dump_line(value)}"
            for name, value in result.evolved_genes.items()
        )
        say(f"winning genes   {words}")
    say()
    for line in costs_lines(result.costs, shutil.get_terminal_size().columns):
        say(line)
    say("", f"picture: {result.picture}")
    say("", "try next:")
    labels = result.ensemble.labels
    label = f" --label {quoted(labels.names[-1])}" if labels else ""
    say(f"  {command} sample {path}{label} -n 100 -o more.png")
    if result.scores is None:
        say(f"  {command} runs")
    else:
        metrics = " fid is tvd" if result.scores.class_histogram else ""
        say(f"  {command} score {path}{metrics}")
    again = result.seed + 1
    copy = quoted(result.path.with_name(f"{result.path.name}-seed-{again}"))
    say(f"  {command} train {quoted(result.path / 'config.yaml')} seed={again} run.dir={copy}")
