"""Time spent per routine, the way the article's profile splits it, with an honest `other`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Clock:
    """Sums wall-clock seconds by routine from the moment it is created, and CPU seconds in all."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._cpu_start = time.process_time()
        self._seconds: dict[str, float] = {}
        self.current = "other"  # the routine it is in, for another thread that asks

    @contextmanager
    def routine(self, name: str) -> Iterator[None]:
        start, before = time.perf_counter(), self.current
        self.current = name
        try:
            yield
        finally:
            self.current = before
            self.add(name, time.perf_counter() - start)

    def add(self, name: str, seconds: float) -> None:
        self._seconds[name] = self._seconds.get(name, 0.0) + seconds

    def seconds(self) -> dict[str, float]:
        """Seconds by routine; `other` is what no routine accounts for, so they sum to the total."""
        known = dict(self._seconds)
        total = time.perf_counter() - self._start
        known["other"] = max(0.0, total - sum(known.values()))
        return {name: round(value, 6) for name, value in known.items()}

    def cpu_seconds(self) -> float:
        """CPU time of this process so far, all its threads: what waiting does not add to."""
        return round(time.process_time() - self._cpu_start, 6)
