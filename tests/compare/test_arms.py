"""How arms, seeds and budgets are written on a command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.compare.arms import Budget, parse_arms, parse_budget, parse_collapse, parse_seeds
from remuda.config import Config
from remuda.errors import ConfigError


def run_folder(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / "config.yaml").touch()
    return path


def configurations(words: list[str]) -> list[Config]:
    return [arm.config() for arm in parse_arms(words)]


def test_an_arm_is_a_name_a_preset_and_settings() -> None:
    one, other = parse_arms(["alone=quickstart method=independent", "gap-toy-r15"])
    assert (one.name, one.source, one.overrides) == ("alone", "quickstart", ("method=independent",))
    assert (other.name, other.source, other.overrides) == ("gap-toy-r15", "gap-toy-r15", ())
    assert one.config().method.name == "independent"


def test_settings_with_blanks_are_quoted_as_in_a_shell() -> None:
    one, _ = parse_arms(["a=quickstart 'network.hidden=[8, 8]'", "b=quickstart"])
    assert one.config().network.model_dump()["hidden"] == (8, 8)


def test_a_data_folder_is_a_setting_of_every_arm(tmp_path: Path) -> None:
    one, _ = parse_arms(["a=quickstart", "b=quickstart"])
    assert one.config(tmp_path / "with blank").data.dir == str(tmp_path / "with blank")


def test_a_pattern_of_run_folders_is_an_arm_named_after_it(tmp_path: Path) -> None:
    runs = [run_folder(tmp_path / name) for name in ("gap-1", "gap-2")]
    alone = run_folder(tmp_path / "alone-1")
    gap, other = parse_arms([f"{tmp_path}/gap-*", f"one={alone}"])
    assert (gap.name, gap.found) == ("gap", tuple(runs))
    assert (other.name, other.found) == ("one", (alone,))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["quickstart"], "at least two arms"),
        (["a=quickstart", "a=gap-toy-r15"], "arm a: the name is taken"),
        (["a=quickstart", " "], "an arm is empty"),
        (["a=quickstart", "b='gap-toy-r15"], "No closing quotation"),
        (["a=quickstart", "b=gapp-toy-r15"], "gapp-toy-r15: neither a preset nor a file"),
        (["a=quickstart", "b!=gap-toy-r15"], "'b!=gap-toy-r15' cannot be the name of an arm"),
        (["a=quickstart", "b=~nobody-here/x"], "~nobody-here/x: neither a preset nor a file"),
        (["a=quickstart", "nothing/here-*"], "nothing/here-*: no run folders there"),
    ],
)
def test_a_mistake_in_the_arms_is_named(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        configurations(words)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_runs_that_exist_and_arms_to_be_trained_do_not_mix(tmp_path: Path) -> None:
    run_folder(tmp_path / "gap-1")
    with pytest.raises(ConfigError, match="gap names runs that exist and b does not"):
        parse_arms([f"{tmp_path}/gap-*", "b=quickstart"])


def test_runs_that_exist_take_no_settings(tmp_path: Path) -> None:
    run_folder(tmp_path / "gap-1")
    with pytest.raises(ConfigError, match="settings cannot be given for runs that exist"):
        parse_arms([f"{tmp_path}/gap-* rounds=3", "b=quickstart"])


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("3", (0, 1, 2)), ("10-12", (10, 11, 12)), ("8,3,5", (3, 5, 8)), ("1-2, 7", (1, 2, 7))],
)
def test_seeds_are_counted_or_listed(text: str, seeds: tuple[int, ...]) -> None:
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize(
    "text", ["0", "", "-1", "3-1", "a", "1,1", "1-", "99999999", "0-99999999999999"]
)
def test_seeds_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=f"--seeds={text}: allowed"):
        parse_seeds(text)


def test_a_budget_has_a_unit_and_an_amount() -> None:
    assert parse_budget("images=600_000") == Budget("images", 600_000)
    assert parse_budget("cpu_seconds=1.5") == Budget("cpu-seconds", 1.5)
    assert str(parse_budget("updates=2,000")) == "updates=2000"
    assert str(parse_budget("images=1234567")) == "images=1234567"


@pytest.mark.parametrize("text", ["images", "images=0", "images=-3", "images=many", "updates=inf"])
def test_a_budget_of_nothing_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="a number above 0"):
        parse_budget(text)


def test_an_unknown_unit_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"did you mean images.*wall-seconds=N"):
        parse_budget("image=3")


HIGHER = {"tvd": False, "is": True, "modes_covered": True}


@pytest.mark.parametrize(
    ("text", "kept", "fallen", "fine"),
    [
        ("tvd>0.5", "tvd>0.5", 0.51, 0.5),
        (" modes_covered < 8", "modes_covered<8", 7.0, 8.0),
        ("is<2e0", "is<2", 1.0, 2.0),
    ],
)
def test_a_collapse_is_a_score_beyond_a_limit_or_not_finite(
    text: str, kept: str, fallen: float, fine: float
) -> None:
    collapsed = parse_collapse(text, HIGHER)
    assert str(collapsed) == kept
    assert parse_collapse(kept, HIGHER) == collapsed
    assert [collapsed(value) for value in (fallen, fine, float("nan"))] == [True, False, True]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tvd", "allowed: SCORE>X or SCORE<X"),
        ("tvd>much", "allowed: SCORE>X or SCORE<X"),
        ("tvd>nan", "allowed: SCORE>X or SCORE<X"),
        ("tvdd>0.5", r"unknown score tvdd; did you mean tvd\? allowed: tvd, is, modes_covered"),
        ("tvd<0.5", "lower is better for tvd, so no run collapses there; allowed: tvd>X"),
        ("is>2", "higher is better for is, so no run collapses there; allowed: is<X"),
    ],
)
def test_a_collapse_that_makes_no_sense_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_collapse(text, HIGHER)
