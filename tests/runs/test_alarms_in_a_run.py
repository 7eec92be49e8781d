"""Alarms in a whole run: told in the events and, once, to the user; and what they say is so."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from remuda.runs.store import RunFolder
from tests import tiny_runs
from tests.faults import before
from tests.tiny import same

pytestmark = pytest.mark.slow  # whole runs

UNLUCKY = 1  # the cell that diverges, in every round from the second


def diverge() -> None:
    from remuda.gan.cell import Cell
    from remuda.gan.learner import Gan

    def spoil(cell: Cell, gan: Gan, *_: object) -> None:
        if cell.index == UNLUCKY and cell.round >= 2:
            gan.generator.learning_rate = gan.discriminator.learning_rate = math.inf

    before(Cell, "train", spoil)


def no_grace() -> None:
    from remuda.runs import alarms

    alarms.GRACE_BATCHES = 0


def alarms_of(run: Path) -> dict[tuple[int, int, str], dict[str, Any]]:
    """By cell, round and kind."""
    return {
        (event["cell"], event["round"], alarm["kind"]): alarm
        for event in tiny_runs.happenings(run)
        if event["event"] == "round"
        for alarm in event["alarms"]
    }


def check_that_the_first_of_each_kind_is_told(run: Path, said: str) -> None:
    first: dict[tuple[int, str], str] = {}
    for (cell, round, kind), alarm in sorted(alarms_of(run).items(), key=lambda item: item[0][1]):
        assert alarm.keys() == {"kind", "message", "advice"}
        assert alarm["message"]
        assert alarm["advice"]
        line = f"alarm cell {cell}, round {round}: {alarm['message']}; advice: {alarm['advice']}"
        first.setdefault((cell, kind), line)
    assert sorted(line for line in said.splitlines() if "alarm" in line) == sorted(first.values())


def networks(tensors: Mapping[str, Tensor], role: str) -> dict[str, Tensor]:
    return {name: value for name, value in tensors.items() if name.startswith(f"{role}.")}


@pytest.mark.parametrize(
    ("method", "fallbacks"),
    [
        (["method=independent"], [UNLUCKY]),
        (["method=cellular", "method.replacement=comma"], [UNLUCKY]),
        # The fittest of its neighbourhood, which on a ring of three is everyone.
        (["method=cellular"], range(tiny_runs.CELLS)),
    ],
    ids=["independent", "comma", "elitist"],
)
def test_a_cell_that_diverges_is_told_and_publishes_its_last_good_round(
    method: list[str], fallbacks: list[int], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    words = tiny_runs.tiny(
        tiny_runs.write_data(tmp_path / "d.npz"), run, "run.keep_last=9", *method
    )
    words = [word for word in words if not word.startswith("method.losses")]
    command = tiny_runs.Command(tmp_path, "train", *words, fault=diverge)
    assert command.wait() == 0, command.said
    found = [key for key in alarms_of(run) if key[2] == "diverged"]
    assert found == [(UNLUCKY, round, "diverged") for round in range(2, tiny_runs.ROUNDS + 1)]
    check_that_the_first_of_each_kind_is_told(run, command.said)

    folder = RunFolder.open(run)
    published = [
        list(folder.load_cells(round, range(tiny_runs.CELLS)).values())
        for round in range(1, tiny_runs.ROUNDS + 1)
    ]
    for earlier, later in pairwise(published):
        for role in ("generator", "discriminator"):
            mine = networks(later[UNLUCKY].tensors, role)
            assert all(bool(value.isfinite().all()) for value in mine.values())
            assert any(same(mine, networks(earlier[cell].tensors, role)) for cell in fallbacks)
            assert math.isfinite(later[UNLUCKY].meta["genes"][role]["learning_rate"])
            if len(fallbacks) == 1:  # and the others trained on
                for cell in {*range(tiny_runs.CELLS)} - {UNLUCKY}:
                    old, new = (networks(one[cell].tensors, role) for one in (earlier, later))
                    assert not same(old, new)


def test_a_collapse_is_told_once_for_each_cell(tmp_path: Path) -> None:
    run = tmp_path / "run"
    digits = ("data.limit=200", "score.extractor=digits", "score.samples=50")
    command = tiny_runs.Command(
        tmp_path, "train", *tiny_runs.tiny("digits", run, *digits), fault=no_grace
    )
    assert command.wait() == 0, command.said
    # Eight neurons that trained on three batches make one blob of whatever noise.
    found = [key[:2] for key in alarms_of(run) if key[2] == "collapsed"]
    assert sorted(found) == [
        (cell, round) for cell in range(tiny_runs.CELLS) for round in range(1, tiny_runs.ROUNDS + 1)
    ]
    for (_, _, kind), alarm in alarms_of(run).items():
        assert kind != "collapsed" or "of 10 classes" in alarm["message"]
    check_that_the_first_of_each_kind_is_told(run, command.said)
    assert command.said.count("classes are generated") == tiny_runs.CELLS
