"""The command that compares: arms times seeds, with statistics. The work is in `compare`."""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from remuda.cli.options import DataDir, own_command, quoted, whole_number
from remuda.cli.printing import complain, say
from remuda.cli.training import EngineName, Workers, check_engine
from remuda.errors import ConfigError

if TYPE_CHECKING:
    from remuda.compare.folder import Comparison
    from remuda.compare.result import Result
    from remuda.compare.session import Watcher

app = typer.Typer()

LOWEST_PRIORITY = 19

Arms = Annotated[
    list[str],
    typer.Argument(
        metavar="ARM|RUNS|FOLDER",
        help="Arms to train, each one word: 'NAME=PRESET-or-FILE key=value …'; or runs that exist, "
        "'runs/gap-*'; or the folder of a comparison, to continue it or to look at it; or the "
        "folders of five comparisons or more, to rank their arms over data sets.",
    ),
]
Seeds = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        metavar="N|A-B|A,B,…",
        help="How many seeds, from 0 on, or which.  [default: 10, or those of the runs]",
    ),
]
BudgetText = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--budget",
        metavar="UNIT=N",
        help="What every run may spend: images, updates, cpu-seconds or wall-seconds. It decides "
        "the rounds of each arm.  [default: the rounds of the arms]",
    ),
]
Out = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        "--out",
        metavar="FOLDER",
        help="Where everything is kept.  [default: runs/compare-DATE-TIME]",
    ),
]
ScoreName = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--score",
        metavar="NAME",
        help="The score that decides, e.g. fid.  [default: score.metric; modes_covered for points "
        "with known modes]",
    ),
]
MetricNames = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--metrics",
        metavar="A,B,…",
        help="Measure these after every run, as `remuda score` does, and compare by them.  "
        "[default: what a run ends with]",
    ),
]
Target = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option(
        metavar="X", help="Also say what each arm needed until its live score was this good."
    ),
]
Collapsed = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        metavar="SCORE>X|SCORE<X",
        help="Also count runs that collapsed, and compare their share: e.g. 'tvd>0.5', or "
        "'modes_covered<8'.",
    ),
]
Jobs = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option(
        "--jobs",
        metavar="N",
        parser=whole_number(1),
        help="How many runs at a time.  [default: as many as there are free cores]",
    ),
]
Nice = Annotated[
    bool, typer.Option("--nice", help="Go on in the background, at the lowest priority.")
]


@app.command()
def compare(
    arms: Arms,
    seeds: Seeds = None,
    budget: BudgetText = None,
    out: Out = None,
    score: ScoreName = None,
    metrics: MetricNames = None,
    target: Target = None,
    collapsed: Collapsed = None,
    engine: EngineName = "auto",
    workers: Workers = "auto",
    jobs: Jobs = None,
    nice: Nice = False,
    data_dir: DataDir = None,
) -> None:
    """Compare methods at equal cost: does A beat B, beyond chance?

    Trains every arm with every seed, several runs at a time, and tests the differences of their
    scores. For example: `remuda compare 'alone=single-toy-r15 rounds=30' 'gap=gap-toy-r15
    rounds=30' --seeds 10 --out runs/toy`. Killed or interrupted, the same command, or `remuda
    compare runs/toy`, goes on where it stopped.
    """
    from remuda.compare.arms import parse_budget, parse_seeds

    wanted = None if seeds is None else parse_seeds(seeds)
    limit = None if budget is None else parse_budget(budget)
    count = check_engine(engine, workers)
    from rich.console import Console

    with Console(stderr=True).status("loading torch"):
        from remuda.compare import session
        from remuda.compare.prepare import Wish

    folders = [Path(arm) for arm in arms if session.is_comparison(Path(arm))]
    if folders and len(folders) == len(arms):
        given = {
            "--budget": budget,
            "--score": score,
            "--metrics": metrics,
            "--target": target,
            "--collapsed": collapsed,
            "--data-dir": data_dir,
            "--workers": count,
            "--engine": None if engine == "auto" else engine,
        }
        _with_folders(folders, given, out, seeds, jobs, nice=nice)
        return
    if target is not None and not math.isfinite(target):
        raise ConfigError(f"--target={target}: allowed: a number")
    wish = Wish(
        *(wanted, limit, score),
        tuple(filter(None, (metrics or "").replace(" ", "").split(","))),
        target,
        _engine(engine, count, is_wall=limit is not None and limit.unit == "wall-seconds"),
        count,
        data_dir,
        collapsed,
    )
    place = out or session.fresh_folder()
    _carry_out(lambda watcher: session.plan(arms, wish, place, watcher), jobs, nice)


def _with_folders(
    folders: Sequence[Path],
    given: Mapping[str, object],
    out: Path | None,
    seeds: str | None,
    jobs: int | None,
    *,
    nice: bool,
) -> None:
    """Continue or show the one comparison that is named, or rank the arms of several."""
    from remuda.compare.arms import parse_seeds

    if len(folders) > 1:
        more = {"--seeds": seeds, "--jobs": jobs, "--nice": nice or None}
        _refuse({**given, **more}, "comparisons are only ranked", "--out")
        _rank(folders, out)
        return
    _refuse({**given, "--out": out}, "its plan is written", "--seeds, --jobs, --nice")
    wanted = None if seeds is None else parse_seeds(seeds)
    _carry_out(lambda _: _reopen(folders[0], wanted), jobs, nice)


def _engine(name: str, workers: int | None, *, is_wall: bool) -> str:
    """Runs beside each other need a core each; where the clock counts, one run takes them all."""
    if name != "auto":
        return name
    return "auto" if is_wall else "process" if workers is not None and workers > 1 else "local"


def _refuse(given: Mapping[str, object], why: str, allowed: str) -> None:
    """Refuse options that would do nothing."""
    for option, value in given.items():
        if value is not None:
            raise ConfigError(f"{option}={value}: {why}; allowed here: {allowed}")


def _carry_out(
    planned: Callable[[Watcher], Comparison | None], jobs: int | None, nice: bool
) -> None:
    """Plan or reopen a comparison, carry it out and show it; interrupted, say how to go on."""
    from rich.console import Console

    from remuda.cli.compare_view import CompareView
    from remuda.cli.interruption import signals_raise
    from remuda.compare import session
    from remuda.compare.drawing import draw
    from remuda.parallel.signals import stop_is_under_way

    watcher = CompareView(Console(stderr=True))
    found = None
    with signals_raise() as received:
        try:
            found = planned(watcher)
            if found is None:
                return
            if nice:
                _detach(found, jobs)
                return
            result = session.carry_out(found, watcher, jobs)
        except BaseException:
            stop_is_under_way()
            if not received:
                raise
            _print_how_to_continue(found)
            raise typer.Exit(128 + received[0]) from None
        finally:
            watcher.close()
    with Console(stderr=True).status("drawing"):
        pictures = draw(found, result)
    _print(found, result, pictures)
    if any(state["state"] == "failed" for state in found.last_states):
        raise typer.Exit(1)


def _reopen(folder: Path, seeds: tuple[int, ...] | None) -> Comparison | None:
    """A comparison to continue; None where another process is at it, which is shown instead."""
    from remuda.compare import session
    from remuda.compare.folder import Comparison

    found = Comparison.open(folder)
    if seeds is not None:
        session.add_seeds(found, seeds)
    elif session.is_at_work(folder):
        found.measure_all()
        _print(found, found.result(found.states()), [])
        say("", "it is being carried out:")
        for line in found.at_work():
            say(f"  {line}")
        return None
    return found


def _detach(found: Comparison, jobs: int | None) -> None:
    """Carry the comparison out in a process of its own that outlives the terminal."""
    words = [sys.executable, "-m", "remuda", "compare", str(found.path.absolute())]
    words += ["--jobs", str(jobs)] if jobs else []
    with found.log.open("a") as log:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, process.pid, LOWEST_PRIORITY)
    say(f"in the background, at the lowest priority, as process {process.pid}")
    say(f"  {own_command()} compare {quoted(found.path)}   shows how far it is")
    say(f"  kill {process.pid}   stops it; nothing is lost")


def _print_how_to_continue(found: Comparison | None) -> None:
    if found is None:
        complain("interrupted before anything was trained")
        return
    complain(
        "interrupted; finished rounds are saved. Continue with:",
        then=f"{own_command()} compare {quoted(found.path)}",
    )


def _print(found: Comparison, result: Result, pictures: Sequence[Path]) -> None:
    from remuda.cli.tables import plain_table, print_table
    from remuda.compare.words import added_seeds, tables, verdicts

    finished = len(result.measured)
    say(found.heading)
    for fact in found.facts(finished, len(found.states())):
        say(fact)
    for table in tables(result):
        say("", f"{table.title}")
        shown = plain_table(*table.columns, numbers=True)
        for row in table.rows:
            shown.add_row(*row)
        print_table(shown)
        if table.note:
            say(table.note)
    say()
    for line in (*verdicts(result), *added_seeds(result)):
        say(line)
    for warning in result.warnings:
        say(f"caution: {warning}")
    say("", f"result: {found.path / 'compare.json'}, compare.md, runs.csv, pairs.csv")
    for picture in pictures:
        say(f"figure: {picture}")


def _rank(folders: Sequence[Path], out: Path | None) -> None:
    """Rank arms over the data sets of several comparisons."""
    from remuda.compare.across import rank, write_ranking

    found = rank(folders)
    for line in found.lines():
        say(line)
    target = out or Path("ranking")
    say("", f"result: {target / 'ranking.json'}")
    for picture in write_ranking(found, target):
        say(f"figure: {picture}")
