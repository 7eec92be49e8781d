"""R1 and minibatch deviation in whole runs: same bits on either engine, killed and resumed."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.config import load_config
from remuda.parallel import training
from remuda.parallel.engines import Engine
from tests.parallel.runs import in_order, words
from tests.tiny_runs import killed_and_resumed, tree

pytestmark = pytest.mark.slow

# Rounds of three batches: R1 falls on another batch of every round, and groups are of five.
BOTH = ("training.r1=0.5", "training.r1_every=4", "network.minibatch_stddev=4")


@pytest.fixture(scope="module")
def undisturbed(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    source, *overrides = words(data, run, *BOTH)
    training.train(load_config(source, overrides), engine=Engine("local"))
    return run


def test_two_processes_give_the_weights_of_one(
    data: Path, tmp_path: Path, undisturbed: Path
) -> None:
    source, *overrides = words(data, tmp_path / "run", *BOTH)
    training.train(load_config(source, overrides), engine=Engine("process", 2))
    assert tree(tmp_path / "run") == tree(undisturbed)
    assert in_order(tmp_path / "run") == in_order(undisturbed)


def test_killed_in_the_middle_and_resumed_it_ends_in_the_same_bits(
    data: Path, tmp_path: Path, undisturbed: Path
) -> None:
    run = tmp_path / "run"
    killed_and_resumed(tmp_path, words(data, run, *BOTH), "after the first cell file", "local")
    assert tree(run) == tree(undisturbed)
    assert in_order(run) == in_order(undisturbed)
