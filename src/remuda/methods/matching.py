"""Random pairs: who meets whom in a round, the same for everyone who asks."""

from __future__ import annotations

from functools import lru_cache

from remuda.streams import choice_stream


@lru_cache(maxsize=8)
def matching(seed: int, round: int, members: int) -> tuple[int | None, ...]:
    """Each member's partner in a round: a random perfect matching, one left over if odd."""
    order = choice_stream(seed, 0, round, "matching").permutation(members).tolist()
    partners: list[int | None] = [None] * members
    for first, second in zip(order[::2], order[1::2], strict=False):
        partners[first], partners[second] = second, first
    return tuple(partners)
