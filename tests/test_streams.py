from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.streams import choice_stream, stream_key, tensor_stream

Key = tuple[int, int, int, str]
unhurried = settings(deadline=None)  # a first call, or a busy machine, may take its time
keys = st.tuples(
    st.integers(0, 2**63 - 1),
    st.integers(0, 400),
    st.integers(0, 10_000),
    st.sampled_from(["noise", "weights", "batches"]),
)
BASE: Key = (42, 3, 17, "noise")
ONE_CHANGED: list[Key] = [
    (43, 3, 17, "noise"),
    (42, 4, 17, "noise"),
    (42, 3, 18, "noise"),
    (42, 3, 17, "noises"),
    (42, 17, 3, "noise"),
]


def tensor_draws(key: Key) -> list[float]:
    return torch.randn(8, generator=tensor_stream(*key)).tolist()


def choice_draws(key: Key) -> list[int]:
    return choice_stream(*key).integers(0, 2**40, 8).tolist()  # type: ignore[no-any-return]


@unhurried
@given(keys)
def test_the_same_key_gives_the_same_draws(key: Key) -> None:
    assert tensor_draws(key) == tensor_draws(key)
    assert choice_draws(key) == choice_draws(key)


@pytest.mark.parametrize("other", ONE_CHANGED)
def test_changing_any_one_part_of_the_key_changes_the_draws(other: Key) -> None:
    assert stream_key(*other) != stream_key(*BASE)
    assert tensor_draws(other) != tensor_draws(BASE)
    assert choice_draws(other) != choice_draws(BASE)


def test_draws_do_not_depend_on_the_global_generators() -> None:
    expected = tensor_draws(BASE), choice_draws(BASE)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(987)
        np.random.seed(987)
        torch.rand(5), np.random.rand(5)
        assert (tensor_draws(BASE), choice_draws(BASE)) == expected


def test_drawing_leaves_the_global_generators_alone() -> None:
    before, numpy_before = torch.get_rng_state(), np.random.get_state(legacy=False)
    tensor_draws(BASE), choice_draws(BASE)
    assert torch.equal(torch.get_rng_state(), before)
    assert str(np.random.get_state(legacy=False)) == str(numpy_before)


def test_draws_do_not_depend_on_which_stream_is_used_first() -> None:
    forwards = {key: tensor_draws(key) for key in ONE_CHANGED}
    backwards = {key: tensor_draws(key) for key in reversed(ONE_CHANGED)}
    assert forwards == backwards


def test_two_streams_drawn_by_turns_do_not_disturb_each_other() -> None:
    first, second = tensor_stream(*BASE), tensor_stream(*ONE_CHANGED[1])
    drawn: list[float] = []
    for _ in range(3):
        drawn.append(torch.rand((), generator=first).item())
        torch.rand((), generator=second)
    assert drawn == torch.rand(3, generator=tensor_stream(*BASE)).tolist()


def test_streams_are_those_of_every_run_so_far() -> None:
    """Golden values: whoever changes them makes all earlier runs impossible to repeat."""
    assert stream_key(0, 0, 1, "noise") == 0xE15D4CE69F9C68D9
    assert stream_key(0, 0, 0, "weights") == 0xD7FFA4876A8444C7
    assert stream_key(*BASE) == 0x2964B38A32BB219
    uniform = torch.rand(3, generator=tensor_stream(*BASE), dtype=torch.float64)
    assert uniform.tolist() == [0.8230403785606191, 0.7252050725364115, 0.4826921026044394]
    normal = torch.randn(3, generator=tensor_stream(*BASE))
    assert normal.tolist() == pytest.approx([0.7120174, -1.4410037, -0.8905094], abs=1e-6)
    integers = choice_stream(*BASE).integers(0, 10**9, 4)
    assert integers.tolist() == [543546033, 77205402, 313015927, 679731050]


def test_thousands_of_keys_are_all_distinct() -> None:
    made = [
        stream_key(*key) for key in product(range(4), range(16), range(100), ("noise", "weights"))
    ]
    assert len(set(made)) == len(made) == 12_800
    assert all(0 <= key < 2**64 for key in made)


def test_digits_do_not_run_together_between_the_parts_of_a_key() -> None:
    assert stream_key(1, 11, 1, "noise") != stream_key(11, 1, 1, "noise")
    assert stream_key(0, 1, 10, "noise") != stream_key(0, 11, 0, "noise")
    assert stream_key(0, 1, 1, "0|noise") != stream_key(0, 1, 10, "noise")
