"""`remuda compare` as a user runs it: its output, its mistakes, kills and the background."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from remuda.compare import session
from remuda.compare.folder import Comparison
from remuda.compare.jobs import carry_out
from remuda.compare.session import Watcher
from remuda.errors import StoreError
from tests.cli.in_process import remuda
from tests.compare.test_session import ARMS, Inline, said, short, timeless
from tests.tiny_runs import Command, tree


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A finished comparison of five seeds, and what it printed."""
    folder = tmp_path_factory.mktemp("compare")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "Runner", Inline)
        code, output, errors = remuda(
            folder, "compare", *short(ARMS), "--seeds", "5", "--target", "1", "--out", "toy"
        )
    assert code == 0, errors
    return folder / "toy", output


def test_the_table_says_all_that_must_be_known(done: tuple[Path, str]) -> None:
    _, output = done
    for part in (
        "alone against gap",
        "10 of 10 runs, seeds 0 to 4, no common budget",
        "modes_covered decides",
        "scores of 40 samples against 15 known modes",
        "modes covered (higher is better): decides",
        "alone − gap",
        "exact sign-flip test",
        "Holm over 4 pairs and scores",
        "Settings in which the arms differ",
        "method.name",
        "Cost of reaching a modes covered while training of 1",
        "p cannot fall below",
        "result: toy/compare.json",
        "figure: toy/figures/curves.png",
    ):
        assert part in output, part


def test_figures_are_drawn_to_look_at_and_to_print(done: tuple[Path, str]) -> None:
    names = {path.name for path in (done[0] / "figures").iterdir()}
    kinds = ("seeds", "differences", "pairs", "curves")
    assert names == {f"{name}.{form}" for name in kinds for form in ("png", "pdf")}


def test_a_finished_comparison_is_shown_again(done: tuple[Path, str]) -> None:
    path, output = done
    code, again, _ = remuda(path.parent, "compare", "toy")
    assert code == 0
    assert again == output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["quickstart"], "a comparison needs at least two arms"),
        (["a=quickstart", "b=quickstrat"], "did you mean quickstart?"),
        (["a=quickstart", "b=gap-toy-r15"], "arms a and b differ in data"),
        (["a=quickstart", "b=quickstart", "--budget", "image=3"], "did you mean images?"),
        (["a=quickstart", "b=quickstart", "--budget", "images=3"], "allowed: at least images="),
        (["a=quickstart", "b=quickstart", "--seeds", "none"], "--seeds=none: allowed"),
        (["a=quickstart", "b=quickstart", "--score", "fit"], "--score=fit: unknown"),
        (["a=quickstart", "b=quickstart", "--metrics", "fit"], "fit: unknown metric"),
        (["a=quickstart", "b=quickstart", "--engine", "magic"], "--engine=magic: unknown"),
        (["a=quickstart", "b=quickstart", "--jobs", "0"], "at least 1"),
        (["a=quickstart", "b=quickstart", "--target", "nan"], "--target=nan: allowed: a number"),
        (["."], "not a comparison: it has no plan.json"),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, words: list[str], message: str) -> None:
    code, output, errors = remuda(tmp_path, "compare", *words)
    assert code in (2, 3)
    assert output == ""
    assert message in errors
    assert len(errors.splitlines()) == 1


def test_the_plan_of_a_comparison_cannot_be_changed(done: tuple[Path, str]) -> None:
    path, _ = done
    for option in (["--budget", "images=1000"], ["--engine", "process"], ["--workers", "2"]):
        code, _, errors = remuda(path.parent, "compare", "toy", *option)
        assert code == 2
        assert f"{option[0]}=" in errors
        assert "its plan is written; allowed here: --seeds, --jobs, --nice" in errors
    code, _, errors = remuda(
        path.parent, "compare", *short(ARMS, 3), "--target", "1", "--out", "toy"
    )
    assert code == 2
    assert "arm alone was planned with rounds=2, not 3" in errors


def test_fewer_than_five_comparisons_are_not_ranked(done: tuple[Path, str]) -> None:
    path, _ = done
    code, _, errors = remuda(path.parent, "compare", "toy", "toy")
    assert code == 2
    assert "on the same data" in errors


def test_a_run_that_fails_is_an_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "Runner", Inline)
    monkeypatch.setattr("tests.compare.test_session.carry_out", _full_disk)
    code, output, _ = remuda(tmp_path, "compare", *short(ARMS, 1), "--seeds", "1", "--out", "x")
    assert code == 1
    assert "caution: gap seed 0 failed: no space" in output
    assert said(tmp_path / "x")["state"] == "incomplete"


def _full_disk(job: dict[str, Any], tell: Any) -> None:
    if "gap-seed-0" in job["path"]:
        raise StoreError("no space")
    carry_out(job, tell)


@pytest.mark.slow
def test_killed_twice_it_goes_on_and_ends_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["compare", *short(ARMS, 4), "--seeds", "2", "--jobs", "1", "--out"]
    killed, undisturbed = tmp_path / "killed", tmp_path / "undisturbed"
    first = Command(tmp_path, *words, str(killed))
    first.wait_for("1 of 4 runs")
    first.send(signal.SIGKILL)
    assert first.wait() == -signal.SIGKILL
    second = Command(tmp_path, "compare", str(killed), "--jobs", "1")
    second.wait_for("3 of 4 runs")
    second.send(signal.SIGINT)
    assert second.wait() == 128 + signal.SIGINT
    assert f"compare {killed}" in second.said
    assert said(killed)["state"] == "stopped"
    third = Command(tmp_path, *words, str(killed))
    assert third.wait() == 0, third.said

    from remuda.compare.arms import parse_seeds
    from remuda.compare.prepare import Wish

    monkeypatch.setattr(session, "Runner", Inline)
    plan = session.plan(short(ARMS, 4), Wish(parse_seeds("2")), undisturbed, Watcher())
    session.carry_out(plan, Watcher())
    assert timeless(said(killed)) == timeless(said(undisturbed))
    for run in (undisturbed / "runs").iterdir():
        assert tree(killed / "runs" / run.name) == tree(run)


@pytest.mark.slow
def test_in_the_background_it_can_be_looked_at_and_stopped(tmp_path: Path) -> None:
    out = tmp_path / "toy"
    start = Command(
        tmp_path, "compare", *short(ARMS, 500), "--seeds", "2", "--nice", "--out", str(out)
    )
    assert start.wait() == 0, start.said
    pid = int(start.said.split("as process ")[1].split()[0])
    assert Path(f"/proc/{pid}").exists()
    end = time.monotonic() + 60
    while not (out / "compare.json").is_file() and time.monotonic() < end:
        time.sleep(0.1)
    assert json.loads((out / "compare.json").read_text())["state"] == "running"
    assert int(Path(f"/proc/{pid}/stat").read_text().rsplit(")")[1].split()[16]) == 19
    look = Command(tmp_path, "compare", str(out))
    assert look.wait() == 0
    assert "it is being carried out" in look.said
    Command(tmp_path, "compare", *short(ARMS, 500), "--out", str(out)).wait()

    os.kill(pid, signal.SIGTERM)
    while session.is_at_work(out) and time.monotonic() < end:
        time.sleep(0.1)
    assert said(out)["state"] == "stopped"
    assert Comparison.open(out).jobs()
