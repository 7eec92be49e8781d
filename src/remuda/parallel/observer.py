"""The interface for following a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from remuda.methods import Mixture, RoundReport
from remuda.parallel.protocol import WorkerStatus
from remuda.runs.alarms import Alarm

if TYPE_CHECKING:
    from remuda.runs.prepare import Run


class Observer:
    """Is called as a run goes on; the terminal view is one. This one does nothing."""

    def prepared(self, message: str) -> None:
        """Something that takes a while before training starts, or what came of it."""

    def started(self, run: Run, path: Path, round: int) -> None:
        """Training starts, or continues, after `round` rounds."""

    def ticked(self, cell: int, round: int, batch: int, batches: int) -> None:
        """A cell is at a batch of its round."""

    def reported(self, report: RoundReport, alarms: list[Alarm]) -> None:
        """A cell finished its round."""

    def completed(self, round: int, mixture: Mixture, seconds: float) -> None:
        """All cells finished a round."""

    def workers_seen(self, workers: Sequence[WorkerStatus]) -> None:
        """What the master knows of its workers: every few seconds, and when one is lost."""

    def warned(self, message: str) -> None:
        """Something the user should know, though the run goes on."""


class RoundCounter(Observer):
    """Passes on how many rounds are complete, and warnings, to who wants to know no more."""

    def __init__(
        self, reached: Callable[[int], None], warn: Callable[[str], None] = lambda _: None
    ) -> None:
        self._reached = reached
        self._warn = warn

    def started(self, run: Run, path: Path, round: int) -> None:
        self._reached(round)

    def completed(self, round: int, mixture: Mixture, seconds: float) -> None:
        self._reached(round)

    def warned(self, message: str) -> None:
        self._warn(message)
