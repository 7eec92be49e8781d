"""Every claim that a comparison decides can be repeated: its plan is what the example runs."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from remuda.compare.arms import parse_arms, parse_seeds
from remuda.compare.plan import differences
from remuda.config import Config, validate

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
CLAIMS: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "examples/claims.yaml").read_text())
COMPARED = [name for name, claim in CLAIMS.items() if "arms" in claim]


def example(*words: str) -> subprocess.CompletedProcess[str]:
    script = ROOT / "examples" / "claims.py"
    return subprocess.run(
        [sys.executable, str(script), *words], capture_output=True, text=True, check=False
    )


def changed(planned: dict[str, Any], now: Config, *, has_budget: bool) -> list[Any]:
    """The settings in which a run would differ from what was planned.

    A plan holds what was found in the data and what the budget decided. What it does not name is
    newer than it, and must be at the default that means what was done then.
    """
    found = ("name", "run.", "grid.", "network.condition", "network.classes", "data.dir")
    ignored = (*found, "rounds") if has_budget else found
    return [
        one
        for one in differences(
            validate(planned).model_dump(mode="json"), now.model_dump(mode="json")
        )
        if not one[0].startswith(ignored)
    ]


def read(name: str, file: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / name / file).read_text())
    return found


@pytest.mark.parametrize("name", COMPARED)
def test_the_plan_of_a_result_is_what_its_example_runs(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    shown = example(name, "--show")
    assert shown.returncode == 0, shown.stderr
    words, plan = shlex.split(shown.stdout.splitlines()[0]), read(name, "plan.json")
    start = words.index("--seeds")
    given = dict(zip(words[start::2], words[start + 1 :: 2], strict=True))
    assert list(parse_seeds(given.pop("--seeds"))) == plan["seeds"]
    assert given.pop("--score", plan["score"]) == plan["score"]
    assert given.pop("--out") == f"runs/{name}"
    options = ("budget", "collapsed", "target")
    planned = {f"--{key}": str(plan[key]) for key in options if plan.get(key) is not None}
    given |= {"--target": str(float(given["--target"]))} if "--target" in given else {}
    assert given == planned
    assert words[:2] == ["remuda", "compare"]
    arms = {arm.name: arm.config() for arm in parse_arms(words[2:start])}
    assert list(arms) == [arm["name"] for arm in plan["arms"]]
    for arm in plan["arms"]:
        assert changed(arm["config"], arms[arm["name"]], has_budget="--budget" in planned) == []


@pytest.mark.parametrize("name", CLAIMS)
def test_every_claim_has_its_result_and_a_word_about_it(name: str) -> None:
    assert (RESULTS / name).is_dir()
    assert f"]({name}/" in (RESULTS / "README.md").read_text()
    if name in COMPARED:
        result, plan = read(name, "compare.json"), read(name, "plan.json")
        assert result["plan"]["seeds"] == plan["seeds"]
        assert len(result["runs"]) == len(plan["arms"]) * len(plan["seeds"])


def test_every_result_is_a_claim_that_can_be_repeated() -> None:
    folders = {path.name for path in RESULTS.iterdir() if path.is_dir()} - {"presets"}
    assert folders == set(CLAIMS)


def test_a_wrong_name_is_answered_with_the_nearest() -> None:
    found = example("recipe-digit")
    assert found.returncode == 1
    assert "recipe-digit: no such claim; did you mean recipe-digits? allowed: " in found.stderr
    assert "Traceback" not in found.stderr


def test_without_a_name_all_are_listed() -> None:
    assert all(f"{name}\n" in example().stdout for name in CLAIMS)
