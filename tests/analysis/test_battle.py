"""Battles between runs: the matrix against a slow reference, and what is refused."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from remuda.analysis.battle import Side, fight, rescaled
from remuda.data import dataset_from_array
from remuda.errors import ConfigError, StoreError
from remuda.gan.networks import draw_noise
from remuda.metrics.gam import Gam2Score
from remuda.runs.loading import load
from remuda.runs.population import load_population
from remuda.runs.store import RunFolder
from remuda.streams import tensor_stream
from tests.populations import points_run


def test_the_matrix_is_what_each_discriminator_says_of_each_generator(
    alone: Path, swapped: Path
) -> None:
    found = fight([alone, swapped], samples=60, seed=4)
    members = [one for path in (alone, swapped) for one in load_population(path).members]
    assert found.names == ("alone:0", "alone:1", "swapped:0", "swapped:1")
    for column, maker in enumerate(members):
        noise = draw_noise(maker.network, 60, tensor_stream(4, maker.cell, 2, "gam-noise"))
        for row, judge in enumerate(members):
            with torch.no_grad():
                said = [
                    bool(torch.sigmoid(judge.discriminator(maker.generator(one[None]))) > 0.5)
                    for one in noise
                ]
            assert found.shares[row, column].item() == pytest.approx(sum(said) / 60)
    assert found.real == "100 held-out items of ring8"


def test_judges_of_a_third_run_are_the_same_for_all_and_are_not_judged(
    alone: Path, swapped: Path, runs: Path
) -> None:
    third = points_run(runs / "third", "method=independent", "seed=77")
    found = fight([alone, swapped], judges=[third], samples=60)
    assert found.names == ("alone:0", "alone:1", "swapped:0", "swapped:1")
    assert found.judges == ("third:0", "third:1")
    assert found.judging == ("third",)
    assert found.shares.shape == (2, 4)
    assert found.allowed.all()
    everybody = fight([alone, swapped, third], samples=60)
    assert torch.equal(found.shares, everybody.shares[4:, :4])
    assert [side.name for side in found.sides] == ["alone", "swapped"]
    averages = [one.average for side in found.sides for one in side.scores]
    assert averages == pytest.approx(found.shares.mean(0).tolist())
    assert [one.singles for one in found.helped()] == ["alone"]
    assert found.helped()[0].judges == 2
    assert found.duels() == []


def test_a_third_run_does_not_judge_what_it_trained(alone: Path, tmp_path: Path) -> None:
    tuned = points_run(tmp_path / "tuned", "method=gap", f"init_from=[{alone}]")
    found = fight([tuned], judges=[alone], samples=50)
    assert not found.allowed.any()
    assert [one.judges for one in found.sides[0].scores] == [0, 0]


def test_runs_with_long_names_are_called_by_letters(alone: Path, runs: Path) -> None:
    path = points_run(runs / "a-rather-long-name", "method=gap", "rounds=1")
    found = fight([alone, path], samples=50)
    assert found.names == ("A:0", "A:1", "B:0", "B:1")
    assert [(side.label, side.name) for side in found.sides] == [
        ("A", "alone"),
        ("B", "a-rather-long-name"),
    ]


def test_judges_met_in_training_are_barred(alone: Path, swapped: Path) -> None:
    found = fight([alone, swapped], samples=50)
    assert found.allowed.tolist() == [
        [False, True, True, True],
        [True, False, True, True],
        [True, True, False, False],
        [True, True, False, False],
    ]
    blocked = fight([alone, swapped], samples=50, exclusion="block")
    assert not blocked.allowed[:2, :2].any()
    assert torch.equal(blocked.shares, found.shares)


def test_the_order_of_runs_only_orders_the_matrix(alone: Path, swapped: Path) -> None:
    one, other = fight([alone, swapped], samples=200), fight([swapped, alone], samples=200)
    order = [2, 3, 0, 1]
    assert torch.equal(other.shares, one.shares[order][:, order])
    assert {side.name: side.scores for side in one.sides} == {
        side.name: side.scores for side in other.sides
    }
    assert one.helped() == other.helped()


def test_fine_tuned_discriminators_do_not_judge_their_first_generators(
    alone: Path, runs: Path
) -> None:
    path = points_run(runs / "fine", "method=gap", f"init_from=[{alone}]")
    found = fight([alone, path], samples=50)
    rows = [load_population(path).members[place].lineage for place in (0, 1)]
    for row, lineage in enumerate(rows, start=2):
        for column in (0, 1):
            first = RunFolder(alone).id()
            assert bool(found.allowed[row, column]) == (lineage != f"{first}/{column}")


@pytest.fixture(scope="session")
def tuned(swapped: Path, runs: Path) -> Path:
    """The pair that had swapped, trained on: its generators met all of the first's judges."""
    return points_run(runs / "tuned", "method=gap", f"init_from=[{swapped}]", "rounds=1")


def test_a_renamed_origin_does_not_judge_what_it_was_trained_into(
    swapped: Path, tuned: Path, tmp_path: Path
) -> None:
    renamed = shutil.copytree(swapped, tmp_path / "renamed")
    assert not fight([renamed, tuned], samples=50).allowed.any()


def test_the_origin_of_a_copied_ensemble_does_not_judge_its_generators(
    swapped: Path, tmp_path: Path
) -> None:
    copied = shutil.copytree(swapped / "ensemble", tmp_path / "best" / "generators")
    members = f"grid=1x{len(load(copied).members)}"
    more = ("method=independent", f"init_from=[{copied}]", members, "rounds=1")
    found = fight([swapped, points_run(tmp_path / "new", *more)], samples=50)
    assert not found.allowed[:2, 2:].any()
    assert found.allowed[2:, :2].all()  # its discriminators are new


def test_a_run_is_not_beside_itself(alone: Path, runs: Path, tmp_path: Path) -> None:
    repeated = points_run(runs / "repeated", "method=independent", "name=other", "rounds=1")
    for same in (shutil.copytree(alone, tmp_path / "copy"), repeated, alone / ".." / "alone"):
        with pytest.raises(ConfigError) as caught:
            fight([alone, same])
        assert str(caught.value) == (
            f"{same}: the same run as {alone} (id {RunFolder(alone).id()}: equal settings, seed "
            "and data, whatever its name and rounds); allowed: every run once"
        )


def test_runs_of_one_name_in_two_folders_fight(alone: Path, swapped: Path, tmp_path: Path) -> None:
    one = shutil.copytree(alone, tmp_path / "a" / "run")
    other = shutil.copytree(swapped, tmp_path / "b" / "run")
    found = fight([one, other], samples=50)
    assert [side.name for side in found.sides] == ["a/run", "b/run"]
    assert found.names == ("a/run:0", "a/run:1", "b/run:0", "b/run:1")
    assert torch.equal(found.allowed, fight([alone, swapped], samples=50).allowed)


def as_before_ids(run: Path, origin: Path) -> None:
    """Rewrite a fine-tuned run as an earlier version wrote it, which named folders."""
    env = json.loads((run / "env.json").read_text())
    del env["id"]
    (run / "env.json").write_text(json.dumps(env))
    (newest,) = RunFolder(run).checkpoints()[-1:]
    saved = []
    for parcel in RunFolder(run).load_checkpoint(newest).values():
        text = json.dumps(parcel.meta).replace(RunFolder(origin).id(), origin.name)
        saved.append(RunFolder(run).save_cell(replace(parcel, meta=json.loads(text))))
    RunFolder(run).complete_checkpoint(newest.round, saved, None)


def test_lineages_of_earlier_versions_are_known_by_the_name_of_the_folder(
    swapped: Path, tuned: Path, tmp_path: Path
) -> None:
    old = shutil.copytree(tuned, tmp_path / "old")
    as_before_ids(old, swapped)
    assert {one.lineage for one in load_population(old).members} == {"swapped/0", "swapped/1"}
    assert not fight([swapped, old], samples=50).allowed.any()
    # Beside a run that this version trained on from the same one, too.
    again = points_run(tmp_path / "again", f"init_from=[{swapped}]", "method=gap", "seed=7")
    assert not fight([swapped, old, again], samples=50).allowed.any()


def scores(*averages: float) -> tuple[Gam2Score, ...]:
    return tuple(Gam2Score(one, one / 2, 1) for one in averages)


def test_populations_are_compared_with_isolated_gans_only(alone: Path, swapped: Path) -> None:
    found = fight([alone, swapped], samples=50)
    sides = (
        Side("single", "single", range(2), scores(0.3, 0.4), is_isolated=True),
        Side("gap", "gap", range(2, 4), scores(0.5, 0.6), is_isolated=False),
    )
    planted = replace(found, sides=sides)
    assert [(one.group, one.singles, one.outcome) for one in planted.helped()[:1]] == [
        ("gap", "single", "strongly helps")
    ]
    assert [side.best for side in sides] == [1, 3]
    unjudged = (sides[0], replace(sides[1], scores=scores(0.1, math.nan)))
    assert replace(found, sides=unjudged).helped()[0].outcome == "unknown"
    # All runs of isolated GANs count as one: the best of all singles is to be beaten.
    pooled = (sides[0], replace(sides[1], is_isolated=True), replace(sides[1], name="cells"))
    (one,) = replace(found, sides=pooled).helped()
    assert (one.singles, one.outcome) == ("single, gap", "does not help")


def test_judges_of_both_are_asked_one_by_one(alone: Path, swapped: Path) -> None:
    """Averages over strict and lenient judges mislead: what counts is whom each prefers."""
    found = fight([alone, swapped], samples=50)
    shares = torch.tensor(
        [[0.9, 0.8, 0.9, 0.9], [0.1, 0.1, 0.2, 0.2], [0.9, 0.9, 0.5, 0.5], [0.9, 0.9, 0.5, 0.5]]
    )
    (one,) = replace(found, shares=shares).helped()
    # Its own generator is none of a judge's; the swapped run's discriminators met all of theirs.
    assert (one.judges, one.prefer) == (2, 2)


def test_runs_on_other_data_are_refused(alone: Path, runs: Path) -> None:
    other = points_run(runs / "other", "data=mog25")
    with pytest.raises(ConfigError, match=r"trained on mog25, and .*alone on ring8"):
        fight([alone, other], samples=50)


def test_the_tolerance_decides_which_duels_are_fair(alone: Path, swapped: Path) -> None:
    found = fight([alone, swapped], samples=200)
    errors = (0.5, 0.5, 0.55, 0.55)
    strict, lax = (
        replace(found, real_errors=errors, tolerance=tolerance).duels()[0][2].winner
        for tolerance in (0.01, 10.0)
    )
    assert strict is None
    assert lax is not None


def test_the_best_members_fight_a_duel(alone: Path, swapped: Path) -> None:
    found = fight([alone, swapped], samples=50)
    shares = torch.full((4, 4), 0.5)
    shares[1, 2], shares[2, 1] = 0.2, 0.8
    sides = (
        replace(found.sides[0], scores=scores(0.3, 0.4)),
        replace(found.sides[1], scores=scores(0.6, 0.5)),
    )
    errors = (0.9, 0.3, 0.3, 0.1)
    ((one, other, result),) = replace(found, shares=shares, sides=sides, real_errors=errors).duels()
    assert (one, other, result.winner) == ("alone:1", "swapped:0", 1)
    assert result.sample_ratio == pytest.approx(0.25)
    unjudged = replace(found, sides=(replace(sides[0], scores=scores(math.nan)), sides[1]))
    assert unjudged.duels() == []


def test_points_are_judged_in_the_judges_own_scale(alone: Path) -> None:
    points = torch.tensor([[0.0, 10.0], [4.0, 30.0], [2.0, 14.0]])
    wide, narrow = dataset_from_array(points.numpy()), dataset_from_array(points[1:].numpy())
    assert wide.scaling != narrow.scaling
    run = load_population(alone)
    one, other = replace(run, dataset=wide), replace(run, dataset=narrow)
    assert torch.allclose(rescaled(wide.items[1:], one, other), narrow.items[:], atol=1e-6)
    assert torch.allclose(rescaled(narrow.items[:], other, one), wide.items[1:], atol=1e-6)
    items = wide.items[:]
    assert rescaled(items, one, one) is items


def test_what_cannot_fight_is_refused(alone: Path, images: Path, runs: Path) -> None:
    with pytest.raises(ConfigError, match="allowed: two runs or more"):
        fight([alone])
    with pytest.raises(ConfigError, match=r"are 1x28x28 and those of .*alone 2; allowed"):
        fight([alone, images])
    with pytest.raises(StoreError, match="not a run folder"):
        fight([alone, runs / "missing"])
    critic = points_run(
        runs / "critic", "method=independent", "training.objective=wasserstein", "rounds=1"
    )
    with pytest.raises(ConfigError, match=r"training\.objective=wasserstein: its discriminators"):
        fight([alone, critic])
