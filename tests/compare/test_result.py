"""From the scores of runs to who beats whom, and how it is said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from remuda.compare.cautions import cautions
from remuda.compare.measure import COSTS, Curve, Measured
from remuda.compare.plan import Plan
from remuda.compare.result import Result, Score, analyse, to_json
from remuda.compare.words import (
    added_seeds,
    markdown,
    number,
    pairs_csv,
    runs_csv,
    tables,
    verdicts,
)
from remuda.errors import ConfigError
from remuda.files import to_json as json_text
from tests.compare.test_plan import make_plan

FID, TVD = Score("fid", "FID", False), Score("tvd", "TVD", False)
COVERED = Score("modes_covered", "modes covered", True)
NAN = float("nan")


def measured(
    arm: str,
    seed: int,
    values: Mapping[str, float],
    costs: float = 100.0,
    curve: Sequence[float] = (),
) -> Measured:
    spent = np.linspace(costs / max(1, len(curve)), costs, len(curve))
    return Measured(
        arm,
        seed,
        Path(f"{arm}-{seed}"),
        dict(values),
        dict.fromkeys(COSTS, costs),
        Curve(np.array(curve), dict.fromkeys(COSTS, spent)),
        dict.fromkeys(("data", "extractor", "samples", "real"), "same"),
        dict.fromkeys(("remuda", "torch", "platform"), "same"),
    )


def found(
    figures: Mapping[str, Sequence[float]], plan: Plan | None = None, score: Score = FID
) -> Result:
    """The result of runs with one score each, seeds from 0."""
    runs = [
        measured(arm, seed, {score.name: value})
        for arm, values in figures.items()
        for seed, value in enumerate(values)
    ]
    plan = plan or make_plan(seeds=tuple(range(len(runs) // 2)))
    plan = plan.model_copy(update={"score": score.name})
    return analyse(plan, runs, [score], score)


LOW, HIGH = [60.0, 61, 62, 63, 64, 65, 66, 67], [80.0, 82, 81, 85, 84, 83, 87, 86]


def test_lower_wins_where_lower_is_better() -> None:
    (pair,) = found({"grid": LOW, "alone": HIGH}).pairs
    assert (pair.paired, pair.winner, pair.stars, pair.probability) == (True, "grid", "**", 1.0)
    assert pair.difference.estimate == pytest.approx(-20, abs=0.5)


def test_higher_wins_where_higher_is_better() -> None:
    (pair,) = found({"grid": LOW, "alone": HIGH}, score=COVERED).pairs
    assert (pair.winner, pair.probability) == ("alone", 0.0)


def test_the_verdict_names_the_winner_the_size_and_the_chance() -> None:
    (line,) = verdicts(found({"grid": LOW, "alone": HIGH}))
    assert line.startswith("grid beats alone in FID by 20")
    assert "p 0.008, after Holm 0.008" in line
    assert line.endswith("better with probability 1.00")


def test_no_difference_comes_with_what_would_have_been_seen() -> None:
    (line,) = verdicts(found({"grid": LOW, "alone": LOW[::-1]}))
    assert line.startswith("no difference in FID between grid and alone is shown")
    assert "1.2 deviations would be seen 8 times in 10" in line


def test_the_winner_is_who_the_paired_test_found_better_though_random_runs_say_otherwise() -> None:
    """Seeds differ more than arms: A12, which ignores the pairs, may point the other way."""
    alone = [0.0, 10, 20, 30, 40, 50, 60, 70]
    grid = [value + 1 for value in alone]
    (pair,) = found({"grid": grid, "alone": alone}).pairs
    assert pair.stars
    assert pair.winner == "alone"
    assert pair.probability < 0.5
    odd = found({"grid": [*grid[:-1], 70.5], "alone": [*alone[:-1], 70.0]})
    assert odd.pairs[0].winner == "alone"


def test_a_mean_that_speaks_against_the_winner_is_told() -> None:
    """Unpaired runs are compared by rank, so one bad run may turn the mean around."""
    result = found({"grid": [10.0, 11, 10, 11, 10, 11, 10, 900], "alone": HIGH}, unpaired_plan())
    assert result.pairs[0].winner == "grid"
    (line,) = verdicts(result)
    assert line.startswith("grid beats alone in FID in most runs, though its mean is worse by")


def test_the_gain_is_from_the_side_of_the_winner() -> None:
    (line,) = verdicts(found({"grid": HIGH, "alone": LOW}))
    assert line.startswith("alone beats grid in FID by 20 on average [19")
    (line,) = verdicts(found({"grid": HIGH, "alone": LOW}, score=COVERED))
    assert line.startswith("grid beats alone in modes covered by 20 on average [19")


def unpaired_plan() -> Plan:
    plan = make_plan(seeds=tuple(range(8)))
    other = {**plan.arms[1].config, "training": {**plan.arms[1].config["training"]}}
    other["training"]["batch_size"] = 50
    arms = [plan.arms[0], plan.arms[1].model_copy(update={"config": other})]
    return plan.model_copy(update={"arms": arms})


def test_arms_with_other_networks_are_not_paired() -> None:
    (pair,) = found({"grid": LOW, "alone": HIGH}, unpaired_plan()).pairs
    assert not pair.paired
    assert "Brunner" in pair.test.name
    assert pair.winner == "grid"


def test_pairs_use_the_seeds_that_both_arms_have() -> None:
    (pair,) = found({"grid": LOW, "alone": HIGH[:6]}).pairs
    assert pair.runs == (6, 6)


def test_holm_is_over_all_pairs_and_scores() -> None:
    runs = [
        measured(arm, seed, {"fid": fid + seed, "tvd": 0.1 * seed})
        for arm, fid in (("grid", 0), ("alone", 50))
        for seed in range(8)
    ]
    result = analyse(make_plan(seeds=tuple(range(8))), runs, [FID, TVD], FID)
    by_score = {pair.score: pair for pair in result.pairs}
    assert by_score["fid"].adjusted == pytest.approx(2 * (by_score["fid"].test.p or 0))
    assert by_score["tvd"].adjusted == 1.0


def test_a_collapsed_run_is_the_worst_and_is_counted() -> None:
    result = found({"grid": [*LOW[:-1], NAN], "alone": HIGH})
    assert result.arms[0].scores["fid"].not_finite == 1
    assert result.pairs[0].difference.estimate is None
    assert "not finite" in markdown(result, "x", [])
    assert "NaN" not in json_text(to_json(result))


def test_a_score_that_is_to_decide_must_be_there() -> None:
    runs = [measured("grid", 0, {"tvd": 0.1}), measured("alone", 0, {"fid": 2.0, "tvd": 0.2})]
    with pytest.raises(ConfigError, match=r"fid is to decide, and not all runs have it.*tvd"):
        analyse(make_plan(seeds=(0,)), runs, [FID, TVD], FID)


def test_a_score_that_some_runs_lack_is_not_compared() -> None:
    runs = [measured("grid", 0, {"fid": 1.0, "tvd": 0.1}), measured("alone", 0, {"fid": 2.0})]
    result = analyse(make_plan(seeds=(0,)), runs, [FID, TVD], FID)
    assert [score.name for score in result.scores] == ["fid"]


def test_collapsed_runs_are_counted_and_their_shares_compared() -> None:
    plan = make_plan(seeds=tuple(range(8))).model_copy(update={"collapsed": "fid>70"})
    result = found({"grid": LOW, "alone": [*HIGH[:-1], NAN]}, plan)
    grid, alone = (arm.collapsed for arm in result.arms)
    assert grid is not None
    assert alone is not None
    assert ((grid.count, grid.of), (alone.count, alone.of)) == ((0, 8), (8, 8))
    (pair,) = result.collapses
    assert (pair.a, pair.b) == ("grid", "alone")
    assert pair.adjusted == pytest.approx(2 / 2**8)
    page = markdown(result, "x", [])
    assert "## Collapsed runs: FID > 70" in page
    assert "| alone | 8 of 8 | 0.63–1.00 |" in page
    assert "McNemar's exact test. Holm over these 1 pairs." in page
    record = json_text(to_json(result))
    assert '"collapsed": {' in record
    assert "collapses" in record


def test_without_a_criterion_nothing_is_said_of_collapse() -> None:
    result = found({"grid": LOW, "alone": HIGH})
    assert result.collapses == ()
    assert all(arm.collapsed is None for arm in result.arms)
    assert "ollapsed" not in markdown(result, "x", [])


def test_the_target_says_who_reached_it_at_what_cost() -> None:
    plan = make_plan(seeds=(0, 1, 2)).model_copy(update={"target": 50.0})
    runs = [measured("grid", seed, {"fid": 40.0}, curve=(90, 60, 40, 45)) for seed in range(3)]
    runs += [measured("alone", seed, {"fid": 40.0}, curve=(90, 80, 70, 55)) for seed in range(3)]
    result = analyse(plan, runs, [FID], FID)
    grid, alone = (arm.reached for arm in result.arms)
    assert grid is not None
    assert alone is not None
    assert (grid["images"].median, grid["images"].reached) == (75.0, 3)
    assert (alone["images"].median, alone["images"].reached) == (None, 0)
    (table,) = [table for table in tables(result) if "Cost of reaching" in table.title]
    assert [row[1] for row in table.rows] == ["3 of 3", "0 of 3"]
    assert table.rows[1][2] == "never"


def test_seeds_added_later_are_compared_with_the_plan() -> None:
    plan = make_plan(seeds=tuple(range(6))).with_seeds(tuple(range(8)))
    result = found({"grid": LOW, "alone": HIGH}, plan)
    lines = added_seeds(result)
    assert lines[0].startswith("seeds 6, 7 were added on ")
    assert "p 0.031 with the planned seeds" in lines[1]
    assert lines[1].endswith("p 0.008 with all")


def states(result: Result) -> list[dict[str, object]]:
    return [
        {"arm": run.arm, "seed": run.seed, "state": "finished", "added": False, "path": "x"}
        for run in result.measured
    ]


def test_few_seeds_and_many_tests_are_cautioned() -> None:
    few = found({"grid": LOW[:4], "alone": HIGH[:4]})
    assert cautions(few, [])[0].startswith("4 seeds are too few")
    assert few.pairs[0].stars == ""
    five = found({"grid": LOW[:5], "alone": HIGH[:5]})
    assert "no difference can be shown: p cannot fall below 0.062" in cautions(five, [])[0]
    assert cautions(found({"grid": LOW, "alone": HIGH}), []) == ()


def test_unequal_costs_are_cautioned_unless_there_was_a_budget() -> None:
    runs = [
        measured(arm, seed, {"fid": 1.0 + seed}, costs)
        for arm, costs in (("grid", 400.0), ("alone", 100.0))
        for seed in range(8)
    ]
    plan = make_plan(seeds=tuple(range(8)))
    result = analyse(plan, runs, [FID], FID)
    assert "different numbers of images: grid 400, alone 100" in cautions(result, [])[0]
    planned = plan.model_copy(update={"budget": "images=400"})
    result = analyse(planned, runs, [FID], FID)
    assert cautions(result, [])[0].startswith("alone spent 100 images per run of a budget of 400")


def test_tables_are_also_markdown_and_csv() -> None:
    result = found({"grid": LOW, "alone": HIGH})
    page = markdown(result, "grid against alone", ["8 seeds"])
    assert page.startswith("# grid against alone\n- 8 seeds\n")
    assert "| grid | 8 | 63.50 | 61.75–65.25 |" in page
    assert runs_csv(result, states(result)).splitlines()[1].startswith("grid,0,finished,False,60.0")
    assert pairs_csv(result).splitlines()[1].startswith("grid,alone,fid,True,8,8,-20.0")


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (12.0, "12"), (3.14159, "3.142"), (1234.5678, "1,235"), (0.00012345, "0.0001234"),
     (1e-9, "1e-09"), (12345678.9, "1.23e+07"), (NAN, "–"), (-0.0, "0"),
     (None, "–"), (-0.5, "-0.5000")],
)  # fmt: skip
def test_numbers_show_four_digits_that_count(value: float | None, text: str) -> None:
    assert number(value) == text


def test_the_page_holds_no_markup_of_others() -> None:
    page = markdown(
        found({"grid": LOW, "alone": HIGH}), "<b>a</b>", ["[x](http://evil)", "a\nb\x1b[31m"]
    )
    assert page.startswith("# &lt;b>a&lt;/b>\n- [x\\](http://evil)\n- a\\nb\\x1b[31m\n")
