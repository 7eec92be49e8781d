"""The plan of a comparison: what it holds, when it is another one, who shares a start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from remuda.compare.arms import Arm, Budget
from remuda.compare.folder import Comparison
from remuda.compare.plan import (
    Plan,
    differences,
    planned_arm,
    read_plan,
    rounds_within,
    settings_that_differ,
    share_their_start,
    write_plan,
)
from remuda.config import load_config
from remuda.errors import ConfigError, StoreError
from remuda.files import write_json
from remuda.runs.prepare import Run

TINY = ("data=r15", "data.limit=60", "training.batch_size=10", "network.hidden=[4]")


def make_plan(*overrides: str, seeds: tuple[int, ...] = (0, 1)) -> Plan:
    arms = [
        planned_arm(
            Arm(name, "cellular-digits"), load_config("cellular-digits", [*overrides, *more])
        )
        for name, more in (("grid", []), ("alone", ["method=independent"]))
    ]
    return Plan(written="then", arms=arms, seeds=list(seeds), score="fid", live="fid")


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    plan = make_plan("rounds=3")
    write_plan(tmp_path, plan)
    assert read_plan(tmp_path) == plan


def test_an_arm_of_a_plan_is_a_whole_configuration(tmp_path: Path) -> None:
    arm = make_plan("rounds=3", "training.batch_size=50").arm("alone")
    config = arm.settings(7, tmp_path)
    assert (config.seed, config.run.dir, config.name) == (7, str(tmp_path), "alone")
    assert (config.rounds, config.training.batch_size, config.method.name) == (3, 50, "independent")


def test_a_folder_without_a_plan_is_not_a_comparison(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"not a comparison: it has no plan\.json"):
        read_plan(tmp_path)


def test_a_damaged_or_newer_plan_is_named(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text("{")
    with pytest.raises(StoreError, match="not a plan of a comparison"):
        read_plan(tmp_path)
    (tmp_path / "plan.json").write_text('{"format": 2}')
    with pytest.raises(StoreError, match="please upgrade"):
        read_plan(tmp_path)


def test_seeds_are_added_with_a_date_and_those_of_the_plan_stay() -> None:
    plan = make_plan().with_seeds((0, 1, 5, 6))
    assert plan.seeds == [0, 1]
    assert [(more.seeds, bool(more.time)) for more in plan.additions] == [([5, 6], True)]
    assert plan.all_seeds == [0, 1, 5, 6]
    assert plan.with_seeds((0, 6)) == plan


def test_another_plan_is_refused_by_what_differs(tmp_path: Path) -> None:
    plan = make_plan("rounds=3")
    plan.check_same(make_plan("rounds=3", seeds=(4,)), tmp_path)
    with pytest.raises(ConfigError, match="arm grid was planned with rounds=3, not 4"):
        plan.check_same(make_plan("rounds=4"), tmp_path)
    other = plan.model_copy(update={"budget": "images=10"})
    with pytest.raises(ConfigError, match="was planned with budget None, not images=10"):
        plan.check_same(other, tmp_path)
    other = plan.model_copy(update={"data": "of another fingerprint"})
    with pytest.raises(ConfigError, match="was planned with other data"):
        plan.check_same(other, tmp_path)
    fewer = plan.model_copy(update={"arms": plan.arms[:1]})
    with pytest.raises(ConfigError, match="a comparison of grid and alone, not of grid"):
        plan.check_same(fewer, tmp_path)


def test_settings_that_differ_are_listed_by_arm() -> None:
    differ = settings_that_differ(make_plan().arms)
    assert differ["method.name"] == {"grid": "cellular", "alone": "independent"}
    assert "seed" not in differ
    assert "name" not in differ
    assert not any(key.startswith("run.") for key in differ)
    assert differ["method.tournament_size"]["alone"] is None


def test_differences_are_by_dotted_key() -> None:
    assert differences({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}, "d": 4}) == [
        ("a.c", 2, 3),
        ("d", None, 4),
    ]


def test_same_seed_runs_share_weights_and_batches_where_the_settings_say_so() -> None:
    grid = load_config("cellular-digits", [*TINY, "grid=1x2"])
    alone = load_config("cellular-digits", [*TINY, "method=independent", "grid=1x2", "rounds=3"])
    assert share_their_start(grid, alone)
    cells = [Run.prepare(config).cell(0) for config in (grid, alone)]
    for role, _ in cells[0].gan.roles:
        one, other = (dict(cell.gan.roles)[role].network.state_dict() for cell in cells)
        assert all(torch.equal(one[name], other[name]) for name in one)
    for cell in cells:
        cell.round = 1
    assert torch.equal(cells[0]._batches(), cells[1]._batches())


@pytest.mark.parametrize(
    "change",
    ["grid=1x3", "network.hidden=[5]", "training.batch_size=20", "data.limit=50", "data=mog25"],
)
def test_runs_that_start_or_see_otherwise_are_not_paired(change: str) -> None:
    one = load_config("cellular-digits", TINY)
    assert not share_their_start(one, load_config("cellular-digits", [*TINY, change]))


def test_a_budget_pays_for_whole_rounds_and_never_more() -> None:
    assert rounds_within(Budget("images", 1000), 300.0, 300.0, "a") == 3
    assert rounds_within(Budget("images", 900), 300.0, 300.0, "a") == 3
    assert rounds_within(Budget("cpu-seconds", 0.3), 0.1, 0.1, "a") == 3
    assert rounds_within(Budget("cpu-seconds", 0.3), 0.2, 0.1, "a") == 2  # a slow first round


def test_a_budget_beyond_all_reason_is_refused() -> None:
    with pytest.raises(ConfigError, match="allowed: at most images=3e"):
        rounds_within(Budget("images", 1e30), 300.0, 300.0, "a")


def test_a_budget_below_one_round_names_the_least() -> None:
    with pytest.raises(ConfigError, match=r"one round of arm a takes 300 images.*images=300"):
        rounds_within(Budget("images", 299), 300.0, 300.0, "a")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"seeds": [*range(10_001)]}, "seeds"),
        ({"seeds": [-1]}, "seeds.0=-1"),
        ({"workers": 10**9}, "workers=1000000000"),
        ({"collapsed": "tvd"}, "collapsed='tvd'"),
        ({"additions": [{"time": "x", "seeds": ["a"]}]}, "additions.0.seeds.0='a'"),
        ({"runs": {"zero": "run"}}, "arms.0.runs.zero"),
    ],
)
def test_a_plan_of_others_has_the_types_and_sizes_that_plans_have(
    change: dict[str, Any], says: str, tmp_path: Path
) -> None:
    values = make_plan("rounds=3").model_dump(mode="json")
    if "runs" in change:
        values["arms"][0].update(change)
    else:
        values.update(change)
    write_json(tmp_path / "plan.json", values)
    with pytest.raises(StoreError, match=rf"plan\.json: not a plan of a comparison: {says}"):
        read_plan(tmp_path)


def test_seeds_far_apart_take_no_more_memory_than_others(tmp_path: Path) -> None:
    for seeds, says in (
        ((0, 1, 2**62), f"seeds 0, 1, {2**62}, "),
        ((2, 0, 1), "seeds 0 to 2, "),
        ((0, 0, 2), "seeds 0, 0, 2, "),
    ):
        found = Comparison(tmp_path, make_plan("rounds=3", seeds=seeds))
        assert says in found.facts(0, 6)[0]
