"""A configuration in YAML is plain: nothing in it refers, repeats itself or grows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from remuda.config import load_config, read_config
from remuda.config.yaml_text import dump_line, parse
from remuda.errors import ConfigError

# Nine lines that would be a billion words.
LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        (LAUGHS, 1, "anchors and aliases are not allowed (a)"),
        ("rounds: 3\nseed: *x\n", 2, "anchors and aliases are not allowed (x)"),
        ("a: 1\nb: &x 2\n", 2, "anchors and aliases are not allowed (x)"),
        ("name: !!binary aGVsbG8=\n", 1, "tags are not allowed (tag:yaml.org,2002:binary)"),
        ("rounds: !!int 'abc'\n", 1, "tags are not allowed"),
        ("seed: ! 5\n", 1, "tags are not allowed (!)"),
        ("a: 1\n<<: {rounds: 3}\n", 2, "a key is not plain text"),
        ("rounds: 3\nseed: 1\nrounds: 4\n", 3, "the key rounds is there twice"),
        ("training:\n  clip: 1\n  clip: 2\n", 3, "the key clip is there twice"),
        ("a: {b: 1, b: 2}\n", 1, "the key b is there twice"),
        ("? [a, b]\n: 3\n", 1, "a key is not plain text"),
        ("a: " + "[" * 40 + "]" * 40, 1, "nested more than 30 times"),
        ("a: " + "{b: " * 5000 + "1" + "}" * 5000, 1, "nested more than 30 times"),
    ],
)
def test_what_is_not_plain_is_refused_with_its_line(
    text: str, line: int, says: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(str(path))
    assert str(caught.value).startswith(f"{path}: line {line}: not valid YAML: {says}")
    assert len(caught.value.lines) == 1


def test_a_huge_file_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    with path.open("wb") as file:
        file.truncate(10**11)
    with pytest.raises(ConfigError, match=r"100,000,000,000 bytes; allowed: a configuration"):
        load_config(str(path))
    with pytest.raises(ConfigError, match=r"100,000,000,000 bytes; allowed: a configuration"):
        read_config(path)
    with pytest.raises(ConfigError, match="the value is not valid YAML"):
        load_config("quickstart", ["name=" + "x" * 2**21])


@pytest.mark.parametrize("digits", [101, 6000])
@pytest.mark.parametrize("key", ["seed", "training.learning_rate", "network.latent", "rounds"])
def test_numbers_of_any_length_are_refused_by_name(key: str, digits: int) -> None:
    for number in ("9" * digits, f"-{'9' * digits}", f"0.{'1' * digits}e{'9' * digits}"):
        with pytest.raises(ConfigError, match=rf"^{key}=.*allowed: a"):
            load_config("quickstart", [f"{key}={number}"])


def test_many_mistakes_are_told_up_to_a_number(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("".join(f"key{number}: 1\n" for number in range(5000)))
    with pytest.raises(ConfigError) as caught:
        load_config(str(path))
    *told, last = caught.value.lines
    assert len(told) == 20
    assert last == "and 4,980 more problems"


@pytest.mark.parametrize("text", ["preset: {}\n", "{}: 1\n", "training: {{{}: 1}}\n", "seed: {}\n"])
def test_long_names_and_values_are_cut(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text.format("x" * 500))
    with pytest.raises(ConfigError) as caught:
        load_config(str(path))
    assert "xxx..." in str(caught.value)
    assert len(str(caught.value)) < 1200


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["grid=100000x100000"], r"grid.shape=100000x100000 has 10,000,000,000 cells; allowed: at"),
        (["network={family: mlp, hidden: [" + "1, " * 1000 + "1]}"], "1,001 layers; allowed: at "),
        (["rounds=1000000000001"], "rounds=1000000000001: not allowed; allowed: a whole number "),
        (
            ["grid.schedule=[" + "{round: 1}, " * 1001 + "]"],
            "grid.schedule: 1,001 changes; allowed: at most 1,000",
        ),
    ],
)
def test_settings_that_nobody_can_carry_out_are_refused(words: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        load_config("quickstart", words)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**99), 10**99) | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(PLAIN)
def test_what_is_written_can_be_read(value: object) -> None:
    read = parse(dump_line(value))
    assert json.dumps(read, sort_keys=True) == json.dumps(value, sort_keys=True)


@given(st.text(max_size=40) | st.text("{}[]:,-&*!|>'\"%@`#\n \tab01.~=<?", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse(text)
    except yaml.YAMLError:
        return
