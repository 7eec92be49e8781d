"""The commands that train: train, resume, slurm."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn, Optional

import typer

from remuda.cli.options import DataDir, RunPath, Words, load_words, own_command, quoted
from remuda.errors import STOPPED, ConfigError, RemudaError, StoreError

if TYPE_CHECKING:
    from remuda.cli.view import View
    from remuda.config import Config
    from remuda.parallel.transports.mpi import Session
    from remuda.runs.outcome import Result

app = typer.Typer()

ENGINES = ("auto", "local", "process", "mpi")
EngineName = Annotated[
    str,
    typer.Option(
        "--engine",
        help="local (this process), process (workers on this machine), mpi (ranks, also on many "
        "machines; starts mpiexec itself), or auto: processes where there is more than one core "
        "and cell, ranks under mpiexec; the weights are the same",
    ),
]
Workers = Annotated[
    str, typer.Option("--workers", metavar="N|auto", help="worker processes; auto: cores / threads")
]
MpiExec = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--mpiexec",
        metavar="COMMAND",
        help="--engine mpi: the launcher with its flags, e.g. 'mpiexec --with-ft ulfm --host a,b'",
    ),
]
Restarts = Annotated[
    int,
    typer.Option("--restarts", min=0, help="--engine mpi: start a lost job again so many times"),
]
Plain = Annotated[bool, typer.Option("--plain", help="one line per round, no live table")]


@app.command()
def train(
    words: Words = None,
    data_dir: DataDir = None,
    engine: EngineName = "auto",
    workers: Workers = "auto",
    mpiexec: MpiExec = None,
    restarts: Restarts = 3,
    plain: Plain = False,
) -> None:
    """Train a population: `remuda train`, `remuda train cellular-mnist grid=3x3 rounds=20`.

    Ends with the scores, a picture of samples and what to try next. Ctrl-C loses nothing:
    `remuda resume` continues, and the weights come out as if nothing had happened. So does
    SIGUSR1, with exit code 75: a batch system may start the run again.
    """
    count = _check_engine(engine, workers)
    session = _join_job(engine)
    chosen = load_words(words, data_dir)
    if engine == "mpi" and session is None:
        from remuda.runs.store import new_path

        path = new_path(chosen).absolute()
        path.mkdir(parents=True, exist_ok=True)  # ours from now on, also in the same second
        given = [*(words or []), f"run.dir={json.dumps(str(path), ensure_ascii=False)}"]
        _supervise(["train", *given], path, data_dir, chosen, count, mpiexec, restarts)
    # A launcher's pipe may look like a terminal, but nobody can redraw lines through it.
    with _watched(plain or session is not None) as view:
        from remuda.parallel import training
        from remuda.parallel.engines import choose_engine

        how = choose_engine(engine, count, session)
        result = training.train(chosen, view, engine=how)
    _show(result)


@app.command()
def resume(
    run: RunPath,
    data_dir: DataDir = None,
    engine: EngineName = "auto",
    workers: Workers = "auto",
    mpiexec: MpiExec = None,
    restarts: Restarts = 3,
    plain: Plain = False,
) -> None:
    """Continue an interrupted run; the result equals that of an undisturbed one.

    Also on another engine or another number of workers.
    """
    count = _check_engine(engine, workers)
    session = _join_job(engine)
    if engine == "mpi" and session is None:
        from remuda.runs.store import RunFolder

        folder = RunFolder.open(run)
        if folder.result() is None:
            path = run.absolute()
            words = ["resume", str(path)]
            _supervise(words, path, data_dir, folder.config(), count, mpiexec, restarts)
    with _watched(plain or session is not None) as view:
        from remuda.parallel import training
        from remuda.parallel.engines import choose_engine
        from remuda.runs.store import RunFolder

        chosen = choose_engine(engine, count, session)
        result = training.resume(run, view, data_dir, engine=chosen)
    if result is None:
        print(f"{run} is finished; nothing to resume. Its ensemble is in {run / 'ensemble'}")
    else:
        _show(result)


@app.command()
def slurm(
    words: Words = None,
    data_dir: DataDir = None,
    nodes: Annotated[int, typer.Option(min=1, help="nodes")] = 1,
    tasks: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(min=2, help="the master and its workers; default: one worker per cell"),
    ] = None,
    time: Annotated[str, typer.Option(help="wall time, as Slurm writes it")] = "01:00:00",
    notice: Annotated[
        int, typer.Option(min=10, help="seconds before the end at which the run is saved")
    ] = 120,
) -> None:
    """Print a job script: `remuda slurm cellular-mnist grid=3x3 --nodes 2 > job.sbatch`.

    It starts mpiexec on all nodes, survives lost ranks, and when the time is nearly up saves the
    run and queues itself again until the run is finished.
    """
    from remuda.parallel.slurm import Request, job_script

    chosen = load_words(words, data_dir)
    if not re.fullmatch(r"(\d+-)?\d+(:\d+){0,2}", time):
        raise ConfigError(f"--time={time}: allowed: MINUTES, H:M:S, or D-H:M:S, e.g. 04:00:00")
    request = Request(nodes, tasks or chosen.cells + 1, chosen.threads, time, notice)
    given = [word for word in words or [] if not word.startswith("run.dir=")]
    if data_dir is not None:
        given += ["--data-dir", str(data_dir.absolute())]
    command = [sys.executable, "-m", "remuda"]
    run = str(Path(chosen.run.dir).expanduser().absolute()) if chosen.run.dir else None
    print(job_script(chosen.name, given, run, request, command), end="")


def _check_engine(engine: str, workers: str) -> int | None:
    """The number of workers asked for; None for auto."""
    if engine not in ENGINES:
        from remuda.config import suggest

        hint = suggest(engine, ENGINES) or ";"
        raise ConfigError(f"--engine={engine}: unknown{hint} allowed: {', '.join(ENGINES)}")
    if workers == "auto":
        return None
    if not workers.isdecimal() or int(workers) < 1:
        raise ConfigError(f"--workers={workers}: allowed: auto, or a whole number at least 1")
    if engine == "local" and int(workers) > 1:
        raise ConfigError(f"--workers={workers}: --engine=local has one; allowed: 1, auto")
    return int(workers)


def _join_job(engine: str) -> Session | None:
    """The MPI job that this process is the master of, if it is in one; workers end in here."""
    from remuda.parallel.launch import find_launcher

    launcher = find_launcher(os.environ)
    alone = launcher is not None and launcher.tasks == 1
    # One task of srun is a user's shell; one of mpiexec, told so, is a job that is too small.
    if launcher is None or (alone and (engine != "mpi" or launcher.name == "srun")):
        return None
    try:
        if engine in ("local", "process"):
            raise ConfigError(
                f"--engine={engine}: {launcher.name} started {launcher.tasks} tasks, and each "
                "would train a run of its own; allowed: auto, mpi, or one task"
            )
        from remuda.parallel.ranks import join_job

        return join_job(launcher)
    except RemudaError as error:
        if launcher.task > 0:  # one of them says it
            raise typer.Exit(error.exit_code) from None
        raise


def _supervise(
    words: list[str],
    path: Path,
    data_dir: Path | None,
    config: Config,
    workers: int | None,
    mpiexec: str | None,
    restarts: int,
) -> NoReturn:
    """Carry a run on MPI, and end with its exit code."""
    from remuda.parallel.engines import default_workers
    from remuda.parallel.launch import allocated_tasks
    from remuda.parallel.supervisor import Commands, Supervisor, find_mpiexec

    allocated = allocated_tasks(os.environ)
    if workers is None:
        workers = allocated - 1 if allocated and allocated > 1 else default_workers(config)
    rank = [sys.executable, "-m", "remuda"]
    options = ["--data-dir", str(data_dir)] if data_dir is not None else []
    options += ["--engine", "mpi"]
    commands = Commands(
        train=[*rank, *words, *options],
        resume=[*rank, "resume", str(path), *options],
    )
    supervisor = Supervisor(
        find_mpiexec(mpiexec, workers + 1),
        commands,
        path,
        restarts,
        lambda line: print(f"remuda: {line}", file=sys.stderr, flush=True),
        config.threads,
    )
    try:
        raise SystemExit(supervisor.run())
    finally:
        with suppress(OSError):  # a run that never began leaves nothing
            path.rmdir()


class _Terminated(BaseException):
    """SIGTERM: a scheduler wants us gone; leave as on Ctrl-C."""


@contextmanager
def _watched(plain: bool) -> Iterator[View]:
    """A view of the run; on Ctrl-C and SIGTERM it says how to go on."""
    from rich.console import Console

    with Console(stderr=True).status("loading torch"):
        from remuda.cli.view import make_view

    received: list[int] = []

    def stop(number: int, _frame: object) -> None:
        received.append(number)
        # The second is ignored: the impatient would interrupt the saving of what they have.
        if len(received) != 2:
            raise KeyboardInterrupt if number == signal.SIGINT else _Terminated

    # A closed terminal is a reason to stop, unless nohup says it is none.
    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    previous = [(number, signal.signal(number, stop)) for number in numbers]
    view = make_view(Console(), plain)
    try:
        with view:
            yield view
    except BaseException as error:
        # Whatever it is: a library interrupted at a bad moment raises an error of its own.
        if isinstance(error, StoreError) and view.path is not None:
            raise StoreError(
                f"{error}\nthe rounds saved so far are intact; when the cause is removed, continue "
                f"with: {own_command()} resume {quoted(view.path)}"
            ) from error
        if not received or isinstance(error, RemudaError):
            raise
        number = received[0]
        if view.path is None:
            print("remuda: interrupted before training started", file=sys.stderr)
        else:
            print(
                f"remuda: interrupted; {view.round} of {view.rounds} rounds are complete and "
                f"saved. Continue with:\n  {own_command()} resume {quoted(view.path)}",
                file=sys.stderr,
            )
        raise typer.Exit(STOPPED if number == signal.SIGUSR1 else 128 + number) from None
    finally:
        for number, handler in previous:
            signal.signal(number, handler)


def _show(result: Result) -> None:
    from remuda.cli.tables import costs_lines
    from remuda.cli.view import duration

    command, path = own_command(), quoted(result.path)
    print(f"\ntrained in {duration(result.seconds)}")
    for line in result.scores.lines() if result.scores else ["no extractor fits these data"]:
        print(line)
    if result.acceptance:
        shares = ", ".join(f"{role}s {share:.0%}" for role, share in result.acceptance.items())
        print(f"offspring kept  {shares}")
    print()
    for line in costs_lines(result.costs, shutil.get_terminal_size().columns):
        print(line)
    print(f"\npicture: {result.picture}")
    print("\ntry next:")
    print(f"  {command} sample {path} -n 100 -o more.png")
    if result.scores is None:
        print(f"  {command} runs")
    else:
        by = " fid is tvd" if len(result.ensemble.shape) > 1 else ""
        print(f"  {command} score {path}{by}")
    print(f"  {command} train quickstart grid=3x3 seed=1")
