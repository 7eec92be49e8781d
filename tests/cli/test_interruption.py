"""Signals and terminals: `remuda` in real processes that are interrupted."""

from __future__ import annotations

import contextlib
import re
import signal
from pathlib import Path

import pytest
import typer

from remuda.cli.interruption import interruptible_start
from remuda.runs.store import RunFolder
from tests import faults
from tests.cli.in_process import remuda
from tests.tiny_runs import Command, in_a_terminal, tiny

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interruption_says_how_to_continue(
    number: signal.Signals, code: int, tmp_path: Path, data: Path
) -> None:
    run = tmp_path / "run"
    command = Command(tmp_path, "train", *tiny(data, run, "rounds=1000"))
    command.wait_for("round    1/1000")
    command.send(number)
    assert command.wait() == code
    errors = command.errors.read_text()
    assert re.fullmatch(
        r"remuda: interrupted; (\d+) of 1000 rounds are complete and saved\. Continue with:\n"
        rf"  \S*remuda resume {run}\n",
        errors,
    )
    state = remuda(tmp_path, "runs", str(tmp_path))[1]
    assert re.search(rf"{run} +interrupted +cellular +1x3 +\S+ +\d+/1000 +live fid ", state)
    code, _, errors = remuda(tmp_path, "sample", str(run))
    assert code == 3
    assert f"{run}: the run is not finished; `remuda resume {run}` continues it" in errors


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_that_gets_lost_while_modules_load_counts_afterwards(
    number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python drops what is raised in a callback of its import system."""
    lost = contextlib.suppress(BaseException)
    with pytest.raises(typer.Exit) as ended, interruptible_start(), lost:
        signal.raise_signal(number)
    assert ended.value.exit_code == 128 + number
    assert capsys.readouterr().err == "remuda: interrupted before training started\n"


def test_an_error_raised_by_an_interrupted_library_is_an_interruption(
    tmp_path: Path, data: Path
) -> None:
    """Libraries turn a KeyboardInterrupt into errors of their own; Pillow has been seen to."""
    command = Command(
        tmp_path, "train", *tiny(data, tmp_path / "run"), fault=faults.interrupt_within_a_library
    )
    assert command.wait() == 130, command.said
    assert "rounds are complete and saved" in command.said
    assert "Traceback" not in command.said


def test_a_terminal_gets_a_live_table_and_then_the_result(tmp_path: Path, data: Path) -> None:
    arguments = ["train", *tiny(data, tmp_path / "run", "training.batches_per_round=25")]
    code, screen = in_a_terminal(arguments, columns=80)
    assert code == 0
    assert "\x1b[" in screen
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen)
    assert re.search(r"round [1-3]/3 .* [\d,]+ images/s +left \d+s", text)
    assert re.search(r"2 +[1-3] +-?[\d.]+ +[\d.]+ .* +(minimax|heuristic) +[\d.]+", text)
    assert "…" not in text
    assert text.index("picture: ") < text.index("try next:")


def test_plain_lines_can_be_asked_for_on_a_terminal(tmp_path: Path, data: Path) -> None:
    code, screen = in_a_terminal(["train", "--plain", *tiny(data, tmp_path / "run", "rounds=1")])
    assert code == 0
    assert re.search(r"round +1/1  FID", screen)
    assert "loss gene" not in screen


def test_ctrl_c_leaves_a_usable_terminal(tmp_path: Path, data: Path) -> None:
    arguments = ["train", *tiny(data, tmp_path / "run", "rounds=1000")]
    code, screen = in_a_terminal(arguments, until="images/s", then=b"\x03")
    assert code == 130
    assert "Continue with:" in screen
    assert screen.rindex("\x1b[?25h") > screen.rindex("\x1b[?25l")  # the cursor is shown again
    assert "Traceback" not in screen


@pytest.mark.parametrize("callback", faults.CALLBACKS)
def test_a_signal_that_a_callback_swallows_stops_the_run_within_its_round(
    callback: str, tmp_path: Path, data: Path
) -> None:
    """Python drops what is raised there; the round would take minutes."""
    run = tmp_path / "run"
    more = ("rounds=400", "run.checkpoint_every=400", "run.sheet_every=0")
    command = Command(
        tmp_path,
        "train",
        *tiny(data, run, *more),
        "--engine=local",
        fault=faults.interrupt_in_a_callback,
        at=callback,
    )
    assert command.wait() == 130, command.said
    assert "1 of 400 rounds are complete and saved" in command.said
    assert [checkpoint.round for checkpoint in RunFolder(run).checkpoints()] == [1]
