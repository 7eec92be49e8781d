"""Cellular runs that exchange by score or average, with genes: same bits however they are run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from remuda import load, score
from remuda.config import Config, load_config
from remuda.parallel import training
from remuda.parallel.engines import Engine
from remuda.runs.outcome import Result
from remuda.runs.store import RunFolder
from tests.cli.in_process import remuda
from tests.parallel.runs import in_order
from tests.tiny_runs import happenings, killed_and_resumed, tiny, tree

pytestmark = pytest.mark.slow

BY_SCORE = (
    "method.exchange=score",
    "method.margin=0",
    "method.ensemble=best",
    "method.mutation_probability=1",
    "method.genes={learning_rate: [1e-4, 1e-2], r1: [0.1, 10], average: [2, 20]}",
    "training.average=5",
    "training.r1_every=2",
)
BY_AVERAGE = ("method.exchange=average", "method.ensemble=average", "training.average=5")
WAYS = {"score": BY_SCORE, "average": BY_AVERAGE}


def words(data: Path, run: Path, *more: str) -> list[str]:
    return [*tiny(data, run), "run.sheet_every=0", *more]


def settings(data: Path, run: Path, *more: str) -> Config:
    source, *overrides = words(data, run, *more)
    return load_config(source, overrides)


@pytest.fixture(scope="module", params=WAYS)
def undisturbed(
    request: pytest.FixtureRequest, data: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    run = tmp_path_factory.mktemp(request.param) / "run"
    training.train(settings(data, run, *WAYS[request.param]), engine=Engine("local"))
    return request.param, run


def test_two_processes_give_the_bits_of_one(
    data: Path, tmp_path: Path, undisturbed: tuple[str, Path]
) -> None:
    way, run = undisturbed
    training.train(settings(data, tmp_path / "run", *WAYS[way]), engine=Engine("process", 2))
    assert tree(tmp_path / "run") == tree(run)
    assert in_order(tmp_path / "run") == in_order(run)


def test_killed_in_the_middle_and_resumed_it_ends_in_the_same_bits(
    data: Path, tmp_path: Path, undisturbed: tuple[str, Path]
) -> None:
    way, run = undisturbed
    again = tmp_path / "run"
    killed_and_resumed(tmp_path, words(data, again, *WAYS[way]), "after the manifest", "local")
    assert tree(again) == tree(run)
    assert in_order(again) == in_order(run)


# ---------------------------------------------------------------------------- what is told


@pytest.fixture(scope="module")
def told(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run by score, and what its training printed."""
    folder = tmp_path_factory.mktemp("told")
    code, output, errors = remuda(folder, "train", *words(data, folder / "run", *BY_SCORE))
    assert (code, errors) == (0, "")
    return folder / "run", output


def test_the_result_tells_the_genes_of_the_winner_as_settings(told: tuple[Path, str]) -> None:
    run, _ = told
    found: dict[str, Any] = json.loads((run / "result.json").read_text())
    assert found["merged"] is False
    (winner,) = map(int, found["mixture"])
    folder = RunFolder(run)
    genes = folder.load_checkpoint(folder.checkpoints()[-1])[winner].meta["genes"]
    assert found["genes"] == {
        "cell": winner,
        "training.learning_rate": genes["generator"]["learning_rate"],
        "training.discriminator_learning_rate": genes["discriminator"]["learning_rate"],
        "training.objective": genes["generator"]["loss"],
        "training.r1": genes["discriminator"]["r1"],
        "training.average": genes["generator"]["average"],
    }
    assert 0.1 <= found["genes"]["training.r1"] <= 10


def test_the_command_prints_the_genes_of_the_winner(told: tuple[Path, str]) -> None:
    run, output = told
    (line,) = re.findall(r"^winning genes   (.*)$", output, re.MULTILINE)
    printed = dict(word.split("=") for word in line.split())
    genes = json.loads((run / "result.json").read_text())["genes"]
    assert printed.keys() == genes.keys() - {"cell"}
    same_loss = "training.objective" in genes  # else it is an entry of method.losses
    loss = genes["training.objective"] if same_loss else f"[{genes['method.losses'][0]}]"
    assert printed["training.objective" if same_loss else "method.losses"] == loss
    assert float(printed["training.r1"]) == pytest.approx(genes["training.r1"], rel=1e-3)


def test_rounds_show_the_founders_that_are_left(told: tuple[Path, str]) -> None:
    run, output = told
    events = [one for one in happenings(run) if one["event"] == "population"]
    shown = re.findall(r"founders G (\d) D (\d)", output)
    assert shown == [
        (str(one["diversity"]["generators"]), str(one["diversity"]["discriminators"]))
        for one in events
        if one["diversity"]["generators"] < 3  # not where all are left
    ]
    assert shown


def test_events_tell_genes_parents_and_diversity(told: tuple[Path, str]) -> None:
    events = happenings(told[0])
    rounds = [one for one in events if one["event"] == "round"]
    assert all(0.1 <= one["r1"] <= 10 and 2 <= one["average"] <= 20 for one in rounds)
    taken = [one for one in rounds if one["parents"]["generator"] != one["cell"]]
    assert taken
    assert all(one["mutations"] for one in taken)
    assert all(not one["mutations"] for one in rounds if one not in taken)
    spreads = [one["diversity"]["spread"] for one in events if one["event"] == "population"]
    assert all(isinstance(spread, float) for spread in spreads)


def test_without_ranges_no_genes_are_printed(data: Path, tmp_path: Path) -> None:
    result = training.train(settings(data, tmp_path / "run", "rounds=1"), engine=Engine("local"))
    assert isinstance(result, Result)
    assert result.evolved_genes == {}
    assert result.genes["training.learning_rate"] > 0


def test_a_family_is_merged_into_one_generator(data: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    training.train(settings(data, run, *BY_AVERAGE, "rounds=1"), engine=Engine("local"))
    found = json.loads((run / "result.json").read_text())
    assert found["merged"] is True
    assert len(found["mixture"]) == 3
    leader = found["genes"]["cell"]
    assert found["chosen"] == (
        f"the average of the weights of 3 relatives among 3 cells; cell {leader} has the best score"
    )
    assert len(load(run).members) == 1


def test_cells_that_start_from_earlier_gans_draw_their_genes(data: Path, tmp_path: Path) -> None:
    training.train(settings(data, tmp_path / "one", "rounds=1"), engine=Engine("local"))
    run = tmp_path / "two"
    more = ("rounds=1", f"init_from=[{tmp_path / 'one'}]", *BY_SCORE)
    training.train(settings(data, run, *more), engine=Engine("local"))
    rates = [
        RunFolder(run).load_initial(cell).meta["genes"]["generator"]["learning_rate"]
        for cell in range(3)
    ]
    assert len(set(rates)) == 3


def test_a_finished_run_is_scored_again_as_it_was(undisturbed: tuple[str, Path]) -> None:
    run = undisturbed[1]
    result = json.loads((run / "result.json").read_text())
    assert score(run).values == pytest.approx(result["scores"]["values"])
