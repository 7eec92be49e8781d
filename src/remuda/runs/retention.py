"""What a run saves, draws and drops in a round, as pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def checkpoint_due(round: int, *, every: int, rounds: int) -> bool:
    """Whether a completed round is saved: every n-th, and always the last."""
    return round % every == 0 or round == rounds


def checkpoints_to_drop(
    losses: Mapping[int, float | None], *, keep_last: int, keep_best: bool
) -> list[int]:
    """Rounds whose checkpoints are dropped, oldest first.

    `losses` maps each saved round to its loss (lower is better), or None where nothing was scored.
    """
    rounds = sorted(losses)
    keep = set(rounds[-keep_last:])
    scored = [(loss, round) for round, loss in losses.items() if loss is not None]
    if keep_best and scored:
        keep.add(min(scored)[1])
    return [round for round in rounds if round not in keep]


def sheet_due(round: int, *, every: int, rounds: int) -> bool:
    """Whether sample sheets are drawn after this round."""
    return round == rounds or (every > 0 and round % every == 0)


def lines_to_keep(rounds: Sequence[int | None], committed: int) -> list[int]:
    """Which event lines stay after a restart from a committed round.

    A line without a round (the run started, it was interrupted) is history and stays; the lines of
    later rounds will be written again, identically.
    """
    return [number for number, round in enumerate(rounds) if round is None or round <= committed]
