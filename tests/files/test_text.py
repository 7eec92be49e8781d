"""Whatever a name holds, a terminal or a page shows it and does nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.errors import RemudaError, visible
from remuda.files import plain_markdown, value_text

# Everything, halves of characters included, and more of what terminals obey.
ANY = st.text(
    st.characters(exclude_categories=()) | st.sampled_from("\x1b\x9b\n\r\b\x07\u202e\u2066\ud800")
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, é 日本 ± ‘x’", "plain, é 日本 ± ‘x’"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("\x1b]8;;http://evil\x07here", r"\x1b]8;;http://evil\x07here"),
        ("\x9b2J", r"\x9b2J"),
        ("a\nremuda: b\r", r"a\nremuda: b\r"),
        ("gpj.\u202egnp", r"gpj.\u202egnp"),
        ("\u2028\u2066\u200b\ufeff\xad", r"\u2028\u2066\u200b\ufeff\xad"),
        ("\udcff", r"\udcff"),
        ("\U000e0041", r"\U000e0041"),
    ],
)
def test_what_a_terminal_would_obey_is_written_out(text: str, shown: str) -> None:
    assert visible(text) == shown


@given(ANY)
def test_any_text_becomes_one_printable_line(text: str) -> None:
    shown = visible(text)
    shown.encode()
    assert len(shown.splitlines()) <= 1
    assert shown.isprintable()
    assert visible(shown) == shown
    if text.isprintable():
        assert shown == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<script>alert(1)</script>", "&lt;script>alert(1)&lt;/script>"),
        ("<!-- <?x <A", "&lt;!-- &lt;?x &lt;A"),
        ("[x](http://evil) ![y](z)", r"[x\](http://evil) ![y\](z)"),
        ("[x][y] [x]: http://evil", r"[x\][y] [x\]: http://evil"),
        ("a | b", r"a \| b"),
        ("p <0.001, tvd<0.5, −0.2 [−1, 0.3] (x)", "p <0.001, tvd<0.5, −0.2 [−1, 0.3] (x)"),
        ("one\n# two", r"one\n# two"),
    ],
)
def test_a_line_of_markdown_has_no_tags_links_or_columns_of_others(text: str, shown: str) -> None:
    assert plain_markdown(text) == shown


def test_messages_show_what_names_bring_along() -> None:
    error = RemudaError("a\nb\x1b[2J: no such file", "second")
    assert error.lines == (r"a\nb\x1b[2J: no such file", "second")
    assert str(error) == "a\\nb\\x1b[2J: no such file\nsecond"


def test_of_a_long_message_the_middle_is_left_out() -> None:
    error = RemudaError(f"{'x' * 10_000}: damaged", "short")
    assert error.lines[0].startswith("xxx")
    assert error.lines[0].endswith("xxx: damaged")
    assert len(error.lines[0]) < 2500
    assert error.lines[1] == "short"


def test_a_value_is_shown_however_large() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    assert value_text("x\n") == r"'x\n'"
    assert value_text("x" * 99) == "'" + "x" * 59 + "..."
    assert value_text(10**6000) == "a value too long to show"
    assert value_text(deep) == "a value too long to show"
    while deep:  # freed level by level: all at once would take the interpreter's stack
        deep = deep.pop()  # type: ignore[assignment]
