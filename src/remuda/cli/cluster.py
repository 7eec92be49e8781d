"""Running on a cluster: `remuda slurm`, and how `train` and `resume` join or start an MPI job."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Annotated, NoReturn, Optional

import typer

from remuda.cli.options import Arguments, DataDir, load_arguments, whole_number
from remuda.cli.printing import complain
from remuda.errors import ConfigError, RemudaError

if TYPE_CHECKING:
    from remuda.config import Config
    from remuda.parallel.transports.mpi_thread import Session

app = typer.Typer()


@app.command()
def slurm(
    arguments: Arguments = None,
    data_dir: DataDir = None,
    nodes: Annotated[
        int, typer.Option(metavar="N", parser=whole_number(1), help="Number of nodes.")
    ] = 1,
    tasks: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            metavar="N",
            parser=whole_number(2),
            help="Number of tasks: the master and its workers.  [default: one worker per cell]",
        ),
    ] = None,
    time: Annotated[
        str, typer.Option(metavar="TIME", help="Wall time, in Slurm's notation.")
    ] = "01:00:00",
    notice: Annotated[
        int,
        typer.Option(
            metavar="SECONDS",
            parser=whole_number(10),
            help="How long before the time is up the run is saved.",
        ),
    ] = 120,
) -> None:
    """Print a Slurm job script for a run.

    For example: `remuda slurm cellular-mnist grid=3x3 --nodes 2 > job.sbatch`. The job starts
    mpiexec on all nodes and survives lost ranks. Shortly before its time is up it saves the run
    and queues itself again, until the run is finished.
    """
    from remuda.parallel.slurm import Request, job_script

    chosen = load_arguments(arguments, data_dir)
    if not re.fullmatch(r"(\d+-)?\d+(:\d+){0,2}", time):
        raise ConfigError(f"--time={time}: allowed: MINUTES, H:M:S, or D-H:M:S, e.g. 04:00:00")
    request = Request(nodes, tasks or chosen.cells + 1, chosen.threads, time, notice)
    given = [argument for argument in arguments or [] if not argument.startswith("run.dir=")]
    if data_dir is not None:
        given += ["--data-dir", str(data_dir.absolute())]
    command = [sys.executable, "-m", "remuda"]
    run = str(Path(chosen.run.dir).expanduser().absolute()) if chosen.run.dir else None
    print(job_script(chosen.name, given, run, request, command), end="")


def join_job(engine: str, read: Callable[[], Config]) -> Session | None:
    """The MPI job whose master this process is, or None outside a job. Workers never return.

    `read` reads the configuration: torch must not be loaded before it is known how.
    """
    from remuda.parallel.launch import find_launcher
    from remuda.runs.portable import ensure_portable

    launcher = find_launcher(os.environ)
    alone = launcher is not None and launcher.tasks == 1
    # A single task of srun is a user's shell; of mpiexec, with --engine mpi, a job too small.
    if launcher is None or (alone and (engine != "mpi" or launcher.name == "srun")):
        return None
    try:
        if engine in ("local", "process"):
            raise ConfigError(
                f"--engine={engine}: {launcher.name} started {launcher.tasks} tasks, and each "
                "would train a run of its own; allowed: auto, mpi, or one task"
            )
        with suppress(RemudaError):  # the master says what is wrong, or a worker that is to train
            ensure_portable(read())
        from remuda.parallel import ranks

        return ranks.join_job(launcher)
    except RemudaError as error:
        if launcher.task > 0:  # rank 0 says it, before the launcher ends all for this one
            sleep(2.0)
            raise typer.Exit(error.exit_code) from None
        raise


def show_life(session: Session | None, path: str | Path | None) -> None:
    """Show the supervisor of a job, if there is one, that the master of this run lives."""
    if session is not None and path is not None:
        from remuda.runs.store import RunFolder

        session.prepare(RunFolder(Path(path)).show_life)


def start_job(
    arguments: list[str],
    path: Path,
    config: Config,
    data_dir: Path | None,
    *,
    workers: int | None,
    mpiexec: str | None,
    restarts: int,
    stuck: int | None,
) -> NoReturn:
    """Start `remuda ARGUMENTS` as an MPI job, start it again when lost; exit with its code."""
    from remuda.files import disk
    from remuda.parallel.engines import default_workers
    from remuda.parallel.launch import allocated_tasks
    from remuda.parallel.supervisor import Commands, Supervisor, find_mpiexec

    allocated = allocated_tasks(os.environ)
    if workers is None:
        workers = allocated - 1 if allocated and allocated > 1 else default_workers(config)
    rank = [sys.executable, "-m", "remuda"]
    options = ["--data-dir", str(data_dir)] if data_dir is not None else []
    options += ["--engine", "mpi", *(["--stuck", str(stuck)] if stuck is not None else [])]
    commands = Commands(
        train=[*rank, *arguments, *options],
        resume=[*rank, "resume", str(path), *options],
    )
    supervisor = Supervisor(
        find_mpiexec(mpiexec, workers + 1),
        commands,
        path,
        restarts,
        complain,
        config.threads,
    )
    try:
        raise SystemExit(supervisor.run())
    finally:
        with suppress(OSError):  # a run that never started leaves nothing behind
            disk.remove_folder(path)
