"""Which cores of this machine nobody else is using."""

from __future__ import annotations

from pathlib import Path

from remuda.parallel.launch import usable_cores

_STAT = Path("/proc/stat")
FREE = 0.6  # of a core: a share that is worth starting a run for


class IdleCores:
    """Watches how many cores were idle between two looks; where that is unknown, all are."""

    def __init__(self, stat: Path = _STAT) -> None:
        self._stat = stat
        self._last = self._read()

    def look(self) -> float:
        """How many cores were idle, on average, since the last look."""
        before, self._last = self._last, self._read()
        if before is None or self._last is None:
            return float(usable_cores())
        idle, total = (new - old for new, old in zip(self._last[:2], before[:2], strict=True))
        return idle / total * self._last[2] if total > 0 else 0.0

    def _read(self) -> tuple[int, int, int] | None:
        """Idle and total ticks of all cores, and how many cores there are."""
        try:
            lines = self._stat.read_text().splitlines()
            ticks = [int(number) for number in lines[0].split()[1:9]]
        except (OSError, ValueError, IndexError):
            return None
        cores = sum(line.startswith("cpu") for line in lines) - 1
        return ticks[3] + ticks[4], sum(ticks), cores
