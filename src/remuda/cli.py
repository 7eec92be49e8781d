"""The `remuda` command. What needs torch is imported inside the command that needs it."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, Optional

import typer

from remuda.analysis import commands as analysis
from remuda.errors import STOPPED, ConfigError, RemudaError, StoreError
from remuda.version import __version__

if TYPE_CHECKING:
    from remuda.comm import Session
    from remuda.config import Config
    from remuda.runtime import Result
    from remuda.view import View

app = typer.Typer(
    name="remuda",
    help="Train populations of GANs in parallel, and sample, score and compare the result.",
    epilog="Start with `remuda train`: digits on a 2x2 grid, minutes, ends with a picture.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Words = Annotated[
    Optional[list[str]],  # noqa: UP045 - typer reads this form
    typer.Argument(
        metavar="[PRESET|FILE.yaml] [KEY=VALUE]...",
        help="a preset (see `remuda presets`) or a YAML file, then settings such as grid=3x3, "
        "rounds=20 or method.tournament_size=2",
        show_default=False,
    ),
]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="a run folder, e.g. runs/NAME")]
DataDir = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option("--data-dir", help="folder with data files (default: REMUDA_DATA)"),
]
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


ENGINES = ("auto", "local", "process", "mpi")


def main() -> NoReturn:
    """Run the command; a user's mistake ends in plain lines and an exit code, not a traceback."""
    try:
        app()
    except RemudaError as error:
        for line in str(error).splitlines():
            print(f"remuda: {line}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("remuda: interrupted", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)
    except BrokenPipeError:
        # The reader of a pipe went away (`remuda runs | head`); that is no error of ours.
        sys.stderr.close()
        sys.exit(0)
    sys.exit(0)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"remuda {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="the version")
    ] = False,
) -> None:
    del version


# ---------------------------------------------------------------------------- training


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
    chosen = _load(words, data_dir)
    if engine == "mpi" and session is None:
        from remuda.store import new_path

        path = new_path(chosen).absolute()
        path.mkdir(parents=True, exist_ok=True)  # ours from now on, also in the same second
        given = [*(words or []), f"run.dir={json.dumps(str(path), ensure_ascii=False)}"]
        if data_dir is not None:
            given += ["--data-dir", str(data_dir)]
        _supervise(["train", *given], path, chosen, count, mpiexec, restarts)
    # A launcher's pipe may look like a terminal, but nobody can redraw lines through it.
    with _watched(plain or session is not None) as view:
        from remuda import runtime

        how = runtime.choose_engine(engine, count, chosen, session)
        result = runtime.train(chosen, view, engine=how)
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
        from remuda.store import RunFolder

        folder = RunFolder.open(run)
        if folder.result() is None:
            given = ["--data-dir", str(data_dir)] if data_dir is not None else []
            words = ["resume", str(run.absolute()), *given]
            _supervise(words, run.absolute(), folder.config(), count, mpiexec, restarts)
    with _watched(plain or session is not None) as view:
        from remuda import runtime
        from remuda.store import RunFolder

        chosen = runtime.choose_engine(engine, count, RunFolder.open(run).config(), session)
        result = runtime.resume(run, view, data_dir, engine=chosen)
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
    from remuda.slurm import Request, job_script

    chosen = _load(words, data_dir)
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
    from remuda.launch import find_launcher

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
        from remuda.runtime import join_job

        return join_job(launcher)
    except RemudaError as error:
        if launcher.task > 0:  # one of them says it
            raise typer.Exit(error.exit_code) from None
        raise


def _supervise(
    words: list[str],
    path: Path,
    config: Config,
    workers: int | None,
    mpiexec: str | None,
    restarts: int,
) -> NoReturn:
    """Carry a run on MPI, and end with its exit code."""
    from remuda.launch import allocated_tasks
    from remuda.runtime import default_workers
    from remuda.supervisor import Commands, Supervisor, find_mpiexec

    allocated = allocated_tasks(os.environ)
    if workers is None:
        workers = allocated - 1 if allocated and allocated > 1 else default_workers(config)
    rank = [sys.executable, "-m", "remuda"]
    commands = Commands(
        train=[*rank, *words, "--engine", "mpi"],
        resume=[*rank, "resume", str(path), *_data_dir(words), "--engine", "mpi"],
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


def _data_dir(words: list[str]) -> list[str]:
    return words[words.index("--data-dir") :][:2] if "--data-dir" in words else []


class _Terminated(BaseException):
    """SIGTERM: a scheduler wants us gone; leave as on Ctrl-C."""


@contextmanager
def _watched(plain: bool) -> Iterator[View]:
    """A view of the run; on Ctrl-C and SIGTERM it says how to go on."""
    from rich.console import Console

    with Console(stderr=True).status("loading torch"):
        from remuda.view import make_view

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
                f"with: {_command()} resume {_quoted(view.path)}"
            ) from error
        if not received or isinstance(error, RemudaError):
            raise
        number = received[0]
        if view.path is None:
            print("remuda: interrupted before training started", file=sys.stderr)
        else:
            print(
                f"remuda: interrupted; {view.round} of {view.rounds} rounds are complete and "
                f"saved. Continue with:\n  {_command()} resume {_quoted(view.path)}",
                file=sys.stderr,
            )
        raise typer.Exit(STOPPED if number == signal.SIGUSR1 else 128 + number) from None
    finally:
        for number, handler in previous:
            signal.signal(number, handler)


def _show(result: Result) -> None:
    from remuda.tables import costs_lines
    from remuda.view import duration

    command, path = _command(), _quoted(result.path)
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


def _quoted(path: Path) -> str:
    """A path as it can be pasted into a shell."""
    return shlex.quote(str(path))


def _command() -> str:
    """How to call remuda from here: by name where it is on the PATH, else by its path."""
    if shutil.which("remuda"):
        return "remuda"
    script = Path(sys.argv[0]).absolute()
    if script.name == "__main__.py":
        script = Path(sys.executable).with_name("remuda")
    here = Path.cwd()
    return str(script.relative_to(here)) if script.is_relative_to(here) else str(script)


# ---------------------------------------------------------------------------- results


@app.command()
def sample(
    run: RunPath,
    count: Annotated[int, typer.Option("-n", "--count", min=1, help="how many samples")] = 64,
    seed: Annotated[int, typer.Option(min=0, help="same seed, same samples")] = 0,
    label: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="only of this label, by name or number; default: all, as in the data"),
    ] = None,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="a .png sheet, or an .npy array")
    ] = Path("samples.png"),
) -> None:
    """Draw samples of a finished run's ensemble into a picture or an array."""
    if output.suffix not in (".png", ".npy"):
        raise ConfigError(f"--output={output}: unknown kind of file; allowed: .png, .npy")
    from remuda import load
    from remuda.files import write_atomically
    from remuda.pictures import sheet

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
    print(f"{count} samples in {output}")


@app.command()
def score(
    run: RunPath,
    metrics: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Argument(
            metavar="[METRIC]...",
            help="fid, fid_logits, is, tvd, kid, pr (precision and recall), dc (density and "
            "coverage); by default the first four, or fid and kid by Inception",
        ),
    ] = None,
    count: Annotated[int, typer.Option("-n", "--count", min=20, help="generated images")] = 10_000,
    real: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--real", min=20, help="real images at most: 60000, or 10000 by Inception"),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="same seed, same samples")] = 0,
    extractor: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="digits (28x28 grey images), cifar (32x32 colour images), inception or "
            "inception-64 (any images); default: as in training"
        ),
    ] = None,
    weights: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Inception-v3 as .npz or .safetensors; default: from the data folder"),
    ] = None,
    output: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("-o", "--output", help="also draw the classes of data and samples: a .png"),
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Score a finished run's ensemble against the data it was trained on.

    Points with known modes are scored by how the samples cover them.
    """
    if output is not None:
        analysis.check_png(output)
    from remuda import api
    from remuda.metrics import Coverage
    from remuda.view import scoring

    with scoring() as progress:
        scores = api.score(
            run,
            metrics or (),
            samples=count,
            real=real,
            seed=seed,
            extractor=extractor,
            weights=weights,
            data_dir=data_dir,
            progress=progress,
        )
    if isinstance(scores, Coverage):
        analysis.show_coverage(run, scores, metrics, output)
        return
    # In the order they were asked for; the accuracy comes with the labels.
    extra = ["accuracy"] if "accuracy" in scores.values else []
    for line in scores.lines([*metrics, *extra] if metrics else None):
        print(line)
    if output is not None:
        analysis.draw_classes(run, scores, output)


@app.command()
def status(run: RunPath) -> None:
    """Show the workers of a run: where they are, what they do, when they were last heard."""
    import dataclasses
    import time

    from rich.console import Console

    from remuda.protocol import Watched
    from remuda.store import RunFolder
    from remuda.tables import workers_line, workers_table

    found = RunFolder.open(run).status()
    if found is None:
        print(f"{run}: nobody is training here now; `{_command()} runs` says how far it came")
        return
    age = max(0.0, time.time() - found["time"])
    workers = [
        dataclasses.replace(watched, heard=watched.heard + age)
        for watched in map(Watched.from_json, found["workers"])
    ]
    print(f"round {found['completed']} of {found['rounds']} is complete, epoch {found['epoch']}")
    console = Console()
    console.print(workers_line(workers))
    console.print(workers_table(workers, console.width))


@app.command()
def runs(
    folder: Annotated[Path, typer.Argument(help="the folder that holds the runs")] = Path("runs"),
) -> None:
    """List the runs in a folder: state, rounds, score."""
    from remuda.store import find_runs
    from remuda.summary import TITLES, summarise

    found = find_runs(folder)
    if not found:
        print(f"no runs in {folder}; start one with: {_command()} train")
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in TITLES:
        table.add_column(title, overflow="fold")
    for run in found:
        table.add_row(*map(Text, summarise(run)))
    # A pipe has no width: one line per run there, for grep and the like.
    Console(width=None if sys.stdout.isatty() else 1000).print(table)


app.add_typer(analysis.app)  # gam, ais, tsne, curves


# ---------------------------------------------------------------------------- data


@app.command()
def anova(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="DATA [KEY=VALUE]...",
            help="a data set or a path as in data.source, then settings such as data.size=32",
        ),
    ],
    data_dir: DataDir = None,
) -> None:
    """Show whether the labels of a data set tell its items apart: ANOVA, channel by channel.

    The first column is the statistic of the articles on class-parallel training, which mixes
    pixels and images; F, p and η² are the usual analysis of the images' mean values.
    """
    source, *settings = words
    settings.insert(0, f"data.source={json.dumps(source)}")
    chosen = _load(settings, data_dir)
    from rich.console import Console
    from rich.table import Table

    from remuda.data import load_dataset
    from remuda.metrics import anova as analyse

    dataset = load_dataset(chosen.data)
    found = analyse(dataset.items, dataset.labels, dataset.name)
    print(f"{found.data}: {found.items} items, {found.classes} classes")
    kinds = {1: ("grey",), 3: ("red", "green", "blue")} if dataset.is_images else {}
    names = kinds.get(len(found.channels)) or tuple(map(str, range(len(found.channels))))
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("channel", "papers' statistic", "F of image means", "p", "η²"):
        table.add_column(title, justify="left" if title == "channel" else "right")
    for name, part in zip(names, found.channels, strict=True):
        chance = f"{part.p:.2g}" if part.p > 0 else "< 1e-300"
        figures = (f"{part.papers:.2f}", f"{part.f:.1f}", chance, f"{part.eta_squared:.3f}")
        table.add_row(name, *figures)
    Console().print(table)
    print(found.meaning)


# ---------------------------------------------------------------------------- configuration


@app.command()
def presets() -> None:
    """List the presets, one line each."""
    from remuda.config import preset_names, preset_summary

    names = preset_names()
    width = max(map(len, names))
    for name in names:
        print(f"{name:<{width}}  {preset_summary(name)}")


@app.command()
def config(words: Words = None) -> None:
    """Print a resolved configuration as commented YAML, ready to be saved and edited."""
    from remuda.config import render

    print(render(_load(words, None)), end="")


def _load(words: list[str] | None, data_dir: Path | None) -> Any:
    from remuda.config import load_config

    given = list(words or [])
    sources = [word for word in given if "=" not in word]
    if len(sources) > 1:
        raise ConfigError(
            f"{' '.join(sources)}: expected one preset or YAML file, then settings as KEY=VALUE"
        )
    overrides = [word for word in given if "=" in word]
    if data_dir is not None:
        overrides.append(f"data.dir={json.dumps(str(data_dir), ensure_ascii=False)}")
    return load_config(sources[0] if sources else None, overrides)
