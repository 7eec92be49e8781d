"""A comparison from its words to its result, in one process."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from remuda.compare import jobs, session
from remuda.compare.arms import Budget
from remuda.compare.folder import Comparison
from remuda.compare.jobs import carry_out
from remuda.compare.prepare import Wish
from remuda.compare.result import Result
from remuda.compare.runner import Runner
from remuda.compare.session import Watcher
from remuda.errors import ConfigError, RemudaError, StoreError
from remuda.files import lock

TINY = (
    "data=r15 data.limit=60 training.batch_size=10 training.batches_per_round=3 network.hidden=[4] "
    "network.latent=2 grid=1x2 score.samples=20 score.final_samples=40 run.sheet_every=0"
)
ARMS = [
    f"alone=cellular-digits method=independent {TINY}",
    f"gap=cellular-digits method=gap {TINY}",
]


class Inline(Runner):
    """Carries out the jobs in this process, which has torch loaded already."""

    stop_after: int | None = None

    def run(self) -> None:
        for done, job in enumerate(list(self._waiting)):
            if done == self.stop_after:
                raise KeyboardInterrupt
            try:
                carry_out(json.loads(job.to_line()), lambda _: None)
                self.progress.finished.add(job)
            except RemudaError as error:
                self.progress.failed[job] = str(error)
            self._over(job)


@pytest.fixture(autouse=True)
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "Runner", Inline)


def compare(out: Path, words: list[str], wish: Wish) -> tuple[Comparison, Result]:
    found = session.plan(words, wish, out, Watcher())
    return found, session.carry_out(found, Watcher())


def short(words: list[str], rounds: int = 2) -> list[str]:
    return [f"{word} rounds={rounds}" for word in words]


def said(out: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((out / "compare.json").read_text())
    return content


def timeless(value: Any) -> Any:
    """Without what differs between two executions of the same plan."""
    if isinstance(value, dict):
        clocks = {"written", "time", "cpu_seconds", "wall_seconds", "process"}
        return {key: timeless(inner) for key, inner in value.items() if key not in clocks}
    return [timeless(inner) for inner in value] if isinstance(value, list) else value


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("compare") / "toy"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "Runner", Inline)
        compare(out, short(ARMS), Wish(seeds=(0, 1, 2), target=1.0, collapsed="modes_covered<1"))
    return out


def test_a_comparison_leaves_all_that_is_needed_to_repeat_it(done: Path) -> None:
    names = {path.name for path in done.iterdir()}
    assert names >= {"plan.json", "arms", "runs", "compare.json", "compare.md", "runs.csv"}
    found = said(done)
    assert found["state"] == "finished"
    assert (found["finished_runs"], found["all_runs"]) == (6, 6)
    assert found["decides"] == "modes_covered"
    assert found["settings_that_differ"]["method.name"] == {"alone": "independent", "gap": "gap"}
    assert (done / "arms" / "gap.yaml").read_text().startswith("name: gap")
    with (done / "runs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {(row["arm"], row["seed"]) for row in rows} == {
        (arm, str(seed)) for arm in ("alone", "gap") for seed in range(3)
    }
    assert [float(row["images"]) for row in rows] == [2 * 2 * 3 * 10] * 6


def test_below_five_seeds_there_are_no_stars_but_a_warning(done: Path) -> None:
    found = said(done)
    assert all(pair["stars"] == "" for pair in found["pairs"])
    assert any("3 seeds are too few" in caution for caution in found["cautions"])
    assert "too few to say; p cannot fall below 0.250" in found["verdicts"][0]


def test_runs_with_the_same_seed_are_paired(done: Path) -> None:
    assert all(pair["paired"] for pair in said(done)["pairs"])


def test_a_target_says_what_each_arm_needed(done: Path) -> None:
    for arm in said(done)["arms"]:
        needed = arm["target_reached"]["images"]
        assert needed["n"] == 3
        assert (needed["median"] is None) == (needed["reached"] < 2)


def test_a_stopped_comparison_goes_on_and_ends_the_same(
    done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "toy"
    wish = Wish(seeds=(0, 1, 2), target=1.0, collapsed="modes_covered<1")
    for stop in (1, 2):
        monkeypatch.setattr(Inline, "stop_after", stop)
        with pytest.raises(KeyboardInterrupt):
            compare(out, short(ARMS), wish)
        assert said(out)["state"] == "stopped"
    assert said(out)["finished_runs"] == 3
    monkeypatch.setattr(Inline, "stop_after", None)
    before = (out / "runs" / "alone-seed-0" / "result.json").stat().st_mtime_ns
    session.carry_out(Comparison.open(out), Watcher())
    assert (out / "runs" / "alone-seed-0" / "result.json").stat().st_mtime_ns == before
    assert timeless(said(out)) == timeless(said(done))


def test_a_finished_run_of_other_settings_is_not_reused(done: Path, tmp_path: Path) -> None:
    out = tmp_path / "toy"
    session.plan(short(ARMS, rounds=3), Wish(seeds=(0,)), out, Watcher())
    (out / "runs").mkdir()
    (out / "runs" / "alone-seed-0").symlink_to(done / "runs" / "alone-seed-0")
    with pytest.raises(StoreError, match="holds a run with rounds=2, not 3"):
        session.carry_out(Comparison.open(out), Watcher())


def test_seeds_that_are_added_later_are_told_and_what_they_changed(tmp_path: Path) -> None:
    out = tmp_path / "toy"
    compare(out, short(ARMS, 1), Wish(seeds=(0, 1)))
    found, result = compare(out, short(ARMS, 1), Wish(seeds=(0, 1, 2)))
    content = said(out)
    assert found.plan.seeds == [0, 1]
    assert [run["added"] for run in content["runs"]] == [False, False, True] * 2
    assert len(content["without_added_seeds"]) == 1
    assert content["without_added_seeds"][0]["runs"] == [2, 2]
    assert "seeds 2 were added on" in content["added_seeds"][0]
    assert "with the planned seeds" in content["added_seeds"][1]
    assert all(line in (out / "compare.md").read_text() for line in content["added_seeds"])
    assert len(result.measured) == 6


def test_planned_seeds_cannot_be_left_out_later(tmp_path: Path) -> None:
    out = tmp_path / "toy"
    session.plan(short(ARMS), Wish(seeds=(0, 1, 2)), out, Watcher())
    with pytest.raises(ConfigError, match="seed 2 is planned"):
        session.plan(short(ARMS), Wish(seeds=(0, 1)), out, Watcher())


def test_a_budget_decides_the_rounds_of_every_arm(tmp_path: Path) -> None:
    words = [ARMS[0], ARMS[1].replace("grid=1x2", "grid=1x4")]
    plan = session.plan(words, Wish((0,), Budget("images", 500)), tmp_path / "x", Watcher()).plan
    # A round is 3 batches of 10 images in each of 2 or 4 cells.
    assert [arm.config["rounds"] for arm in plan.arms] == [8, 4]
    assert [arm.images for arm in plan.arms] == [480, 480]
    plan = session.plan(words, Wish((0,), Budget("updates", 24)), tmp_path / "y", Watcher()).plan
    assert [(arm.config["rounds"], arm.updates) for arm in plan.arms] == [(4, 24), (2, 24)]


def test_a_budget_of_seconds_is_turned_into_rounds_by_pilots(tmp_path: Path) -> None:
    out = tmp_path / "x"
    found = session.plan(ARMS, Wish((0,), Budget("cpu-seconds", 2.0)), out, Watcher())
    for arm in found.plan.arms:
        assert arm.seconds_per_round is not None
        assert 1 <= arm.config["rounds"] <= 1 + int(2.0 / arm.seconds_per_round)
    assert {path.name for path in (out / "pilots").iterdir()} == {"alone", "gap"}
    again = session.plan(ARMS, Wish((0,), Budget("cpu-seconds", 2.0)), out, Watcher())
    assert again.plan == found.plan  # the pilots are measured once


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("data=mog25", "arms alone and gap differ in data: r15"),
        ("score.final_samples=41", "differ in numbers of samples"),
        ("score.extractor=digits", "looks at 1x28x28 images"),
    ],
)
def test_arms_that_cannot_be_compared_are_refused_before_training(
    tmp_path: Path, change: str, message: str
) -> None:
    words = [ARMS[0], f"{ARMS[1]} {change}"]
    with pytest.raises(ConfigError, match=message):
        session.plan(words, Wish((0,)), tmp_path / "x", Watcher())


def test_a_score_that_nobody_knows_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean modes_covered"):
        session.plan(ARMS, Wish(score="mode_covered"), tmp_path / "x", Watcher())


@pytest.mark.parametrize(
    ("collapsed", "message"),
    [
        ("modes_cover<3", "unknown score modes_cover; did you mean modes_covered"),
        ("fid>3", "unknown score fid"),  # points have none
        ("modes_covered>3", "allowed: modes_covered<X"),
    ],
)
def test_a_collapse_by_a_score_that_runs_will_not_have_is_refused(
    collapsed: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        compare(tmp_path / "x", short(ARMS), Wish(seeds=(0,), collapsed=collapsed))
    assert not (tmp_path / "x").exists()


def test_a_collapse_by_a_score_that_only_one_arm_has_is_refused(tmp_path: Path) -> None:
    arms = ["told=quickstart rounds=1", "untold=quickstart rounds=1 network.condition=none"]
    with pytest.raises(ConfigError, match=r"unknown score accuracy.* allowed: fid"):
        compare(tmp_path / "x", arms, Wish(seeds=(0,), collapsed="accuracy<0.5"))


def test_rounds_beside_a_budget_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="arm alone: rounds=2 and --budget=images=500 both"):
        session.plan(short(ARMS), Wish(budget=Budget("images", 500)), tmp_path / "x", Watcher())


def test_runs_that_exist_are_compared_as_they_are(done: Path, tmp_path: Path) -> None:
    words = [f"{done}/runs/alone-*", f"g={done}/runs/gap-*"]
    found, result = compare(tmp_path / "x", words, Wish())
    assert found.plan.found
    assert [arm.seeds for arm in result.arms] == [(0, 1, 2)] * 2
    assert any("before the plan" in caution for caution in result.warnings)
    there = {(pair["score"], pair["test"]["p"]) for pair in said(done)["pairs"]}
    assert {(pair.score, pair.test.p) for pair in result.pairs} == there


def test_runs_without_a_common_seed_are_refused(done: Path, tmp_path: Path) -> None:
    words = [f"a={done}/runs/alone-seed-0", f"b={done}/runs/gap-seed-1"]
    with pytest.raises(ConfigError, match="no seeds in common: a has 0; b has 1"):
        compare(tmp_path / "x", words, Wish())


def test_two_runs_of_one_seed_in_an_arm_are_refused(done: Path, tmp_path: Path) -> None:
    (tmp_path / "alone-0").symlink_to(done / "runs" / "alone-seed-0")
    (tmp_path / "alone-1").symlink_to(done / "runs" / "alone-seed-0")
    words = [f"{tmp_path}/alone-*", f"{done}/runs/gap-*"]
    with pytest.raises(ConfigError, match="both have seed 0; allowed: one run per seed"):
        compare(tmp_path / "x", words, Wish())


def test_an_arm_of_different_settings_is_refused(done: Path, tmp_path: Path) -> None:
    (tmp_path / "mix-0").symlink_to(done / "runs" / "alone-seed-0")
    (tmp_path / "mix-1").symlink_to(done / "runs" / "gap-seed-1")
    words = [f"{tmp_path}/mix-*", f"{done}/runs/gap-*"]
    with pytest.raises(ConfigError, match=r"method\.name=independent and .* has gap"):
        compare(tmp_path / "x", words, Wish())


def test_a_run_that_is_not_finished_is_named(done: Path, tmp_path: Path) -> None:
    half = tmp_path / "half-0"
    half.mkdir()
    for name in ("config.yaml", "env.json", "events.jsonl"):
        (half / name).write_bytes((done / "runs" / "alone-seed-0" / name).read_bytes())
    with pytest.raises(StoreError, match="half-0: is not finished"):
        compare(tmp_path / "x", [f"{half}", f"{done}/runs/gap-*"], Wish())
    assert not (tmp_path / "x" / "plan.json").exists()


@pytest.mark.parametrize(
    ("key", "value", "called"),
    [
        ("samples", 41, "numbers of samples: 40 .* and 41"),
        ("real", "other points", "real images"),
        ("extractor", "inception", "extractors"),
        ("scaling", "0 to 255", "scalings"),
    ],
)
def test_scores_that_depend_on_different_things_are_not_mixed(
    done: Path, tmp_path: Path, key: str, value: object, called: str
) -> None:
    other = tmp_path / "gap-1"
    other.mkdir()
    for name in ("config.yaml", "env.json", "events.jsonl", "result.json"):
        (other / name).write_bytes((done / "runs" / "gap-seed-0" / name).read_bytes())
    result = json.loads((other / "result.json").read_text())
    result["scores"][key] = value
    (other / "result.json").write_text(json.dumps(result))
    with pytest.raises(ConfigError, match=f"scores of different {called}"):
        compare(tmp_path / "x", [f"{done}/runs/alone-*", str(other)], Wish())


def test_a_folder_with_other_things_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(StoreError, match="not a comparison"):
        session.plan(ARMS, Wish(), tmp_path, Watcher())


def test_a_failed_run_is_reported_and_the_others_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(job: dict[str, Any], tell: Any) -> None:
        if "gap-seed-1" in job["path"]:
            raise StoreError("the disk is full")
        jobs.carry_out(job, tell)

    monkeypatch.setattr(f"{__name__}.carry_out", broken)
    _, result = compare(tmp_path / "x", short(ARMS, 1), Wish(seeds=(0, 1)))
    states = {(run["arm"], run["seed"]): run for run in said(tmp_path / "x")["runs"]}
    assert states["gap", 1]["state"] == "failed"
    assert states["gap", 1]["error"] == "the disk is full"
    assert len(result.measured) == 3
    assert any("gap seed 1 failed: the disk is full" in line for line in result.warnings)


def test_other_metrics_are_measured_after_the_runs(done: Path, tmp_path: Path) -> None:
    words = [f"{done}/runs/alone-*", f"{done}/runs/gap-*"]
    _, result = compare(tmp_path / "x", words, Wish(metrics=("modes",)))
    kept = sorted((tmp_path / "x" / "scores").iterdir())
    assert len(kept) == 6
    assert result.scores[0].name == "modes_covered"
    times = [path.stat().st_mtime_ns for path in kept]
    damaged = json.loads(kept[0].read_text())
    kept[0].write_text(json.dumps({**damaged, "run": "of another run"}))
    session.carry_out(Comparison.open(tmp_path / "x"), Watcher())
    assert [path.stat().st_mtime_ns == time for path, time in zip(kept, times, strict=True)] == [
        False,
        *[True] * 5,
    ]
    assert json.loads(kept[0].read_text()) == damaged


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        (Wish(score="fid"), "arm alone: fid: needs images"),
        (Wish(metrics=("tstr",)), "arm alone: tstr: needs items that no cell trained on"),
        (Wish(score="near_copies"), "arm alone: memorisation: needs items that no cell"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_training(
    tmp_path: Path, wish: Wish, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        session.plan(ARMS, wish, tmp_path / "x", Watcher())


def test_a_deciding_score_beyond_those_of_a_run_is_measured(tmp_path: Path) -> None:
    words = [f"{word} data.validation=20" for word in short(ARMS, 1)]
    found, result = compare(tmp_path / "x", words, Wish(seeds=(0,), score="near_copies"))
    assert found.plan.metrics == ["memorisation"]
    assert found.plan.live == "modes_covered"
    assert result.scores[0].name == "near_copies"


def test_existing_runs_must_have_the_score_that_decides(done: Path, tmp_path: Path) -> None:
    words = [f"{done}/runs/alone-*", f"{done}/runs/gap-*"]
    with pytest.raises(ConfigError, match="--score=fid: not among the scores that all runs ended"):
        compare(tmp_path / "x", words, Wish(score="fid"))


def test_what_existing_runs_cannot_be_measured_by_is_refused(done: Path, tmp_path: Path) -> None:
    words = [f"{done}/runs/alone-*", f"{done}/runs/gap-*"]
    with pytest.raises(ConfigError, match="arm alone: fid: needs images"):
        compare(tmp_path / "x", words, Wish(metrics=("fid",)))
    with pytest.raises(ConfigError, match="--engine, --workers: the runs exist already"):
        compare(tmp_path / "x", words, Wish(engine="process", workers=2))
    assert not (tmp_path / "x").exists()


def test_data_of_ones_own_are_found_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savetxt(tmp_path / "points.csv", np.eye(60, 2), delimiter=",")
    monkeypatch.chdir(tmp_path)
    words = [word.replace("data=r15", "data=points.csv") for word in short(ARMS, 1)]
    plan = session.plan(words, Wish(seeds=(0,)), tmp_path / "x", Watcher()).plan
    assert plan.arms[0].config["data"]["source"] == str(tmp_path / "points.csv")


@pytest.mark.parametrize(
    ("key", "value"),
    [("live", "nonsense"), ("score", "nonsense"), ("metrics", ["nope"]), ("engine", "bogus")],
)
def test_a_plan_edited_by_hand_is_refused_by_what_is_wrong(
    done: Path, tmp_path: Path, key: str, value: object
) -> None:
    content = {**json.loads((done / "plan.json").read_text()), key: value}
    (tmp_path / "plan.json").write_text(json.dumps(content))
    with pytest.raises(RemudaError, match=r"nonsense|nope|bogus"):
        Comparison.open(tmp_path)


def test_the_name_of_an_arm_leads_out_of_no_folder(done: Path, tmp_path: Path) -> None:
    content = json.loads((done / "plan.json").read_text())
    content["arms"][0]["name"] = "../x"
    (tmp_path / "plan.json").write_text(json.dumps(content))
    with pytest.raises(StoreError, match=r"arms\.0\.name='\.\./x'"):
        Comparison.open(tmp_path)


def test_other_runs_under_the_same_pattern_are_another_comparison(
    done: Path, tmp_path: Path
) -> None:
    for arm in ("alone", "gap"):
        (tmp_path / f"{arm}-0").symlink_to(done / "runs" / f"{arm}-seed-0")
    words = [f"{tmp_path}/alone-*", f"{tmp_path}/gap-*"]
    compare(tmp_path / "x", words, Wish())
    for arm in ("alone", "gap"):
        (tmp_path / f"{arm}-1").symlink_to(done / "runs" / f"{arm}-seed-1")
    with pytest.raises(ConfigError, match="planned with other runs than there are now"):
        compare(tmp_path / "x", words, Wish())


def test_a_pilot_serves_seeds_that_are_added_later(tmp_path: Path) -> None:
    budget = Budget("cpu-seconds", 2.0)
    first = session.plan(ARMS, Wish((0,), budget), tmp_path / "x", Watcher()).plan
    more = session.plan(ARMS, Wish((5,), budget), tmp_path / "x", Watcher()).plan
    assert more.all_seeds == [0, 5]
    assert [arm.config for arm in more.arms] == [arm.config for arm in first.arms]


def test_seeds_cannot_be_added_while_another_process_is_at_work(done: Path) -> None:
    with lock(done, "busy"), pytest.raises(StoreError, match="another process is at work"):
        session.add_seeds(Comparison.open(done), (0, 1, 2, 3))


def test_arms_that_see_shares_of_the_data_are_compared_with_all_of_them(tmp_path: Path) -> None:
    shares = "data.view=share data.share=0.5 training.batches_per_round=2"
    words = [f"{word} {shares} rounds=1" for word in ARMS]
    words = [word.replace("data=r15", "data=digits score.extractor=digits") for word in words]
    _, result = compare(tmp_path / "x", words, Wish(seeds=(0, 1)))
    assert {run.depends_on["real"] for run in result.measured} == {"60 of 60 training images"}


def test_a_refused_comparison_leaves_nothing_behind(done: Path, tmp_path: Path) -> None:
    for words, wish in (
        ([ARMS[0], f"{ARMS[1]} data=mog25"], Wish()),
        (ARMS, Wish(score="nonsense")),
        ([f"{done}/runs/alone-*", f"b={done}/runs/gap-*"], Wish(score="fid")),
    ):
        with pytest.raises(ConfigError):
            session.plan(words, wish, tmp_path / "x", Watcher())
        assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("setting", ["seed=3", "run.dir=here", "name=x"])
def test_what_a_comparison_chooses_is_no_setting_of_an_arm(tmp_path: Path, setting: str) -> None:
    with pytest.raises(ConfigError, match=f"arm gap: {setting}: a comparison chooses"):
        session.plan([ARMS[0], f"{ARMS[1]} {setting}"], Wish(), tmp_path / "x", Watcher())


def test_other_data_than_planned_are_not_trained_on(
    tmp_path: Path,
) -> None:
    points = tmp_path / "points.csv"
    np.savetxt(points, np.random.default_rng(0).normal(size=(300, 2)), delimiter=",")
    words = [word.replace("data=r15", f"data={points}") for word in short(ARMS, 1)]
    found = session.plan(words, Wish(seeds=(0,)), tmp_path / "x", Watcher())
    np.savetxt(points, np.random.default_rng(1).normal(size=(300, 2)), delimiter=",")
    result = session.carry_out(found, Watcher())
    assert result.measured == ()
    assert all("not the data that were planned with" in one for one in result.warnings[1:3])


def test_an_arm_may_be_longer_than_the_name_of_a_file() -> None:
    assert not session.is_comparison(Path("long=quickstart" + " rounds=30" * 100))
