"""The scores of a set of samples, with everything that must be known to compare them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from remuda.metrics.metric import Pairs
from remuda.metrics.registry import METRICS


@dataclass(frozen=True)
class Scores:
    """Figures by name, and what measured them: extractor, scaling, samples, real data."""

    values: dict[str, float]
    extractor: str
    scaling: str
    samples: int
    real_samples: int
    class_histogram: tuple[int, ...] = ()
    real_class_shares: tuple[float, ...] = ()
    real: str = ""  # which real data, e.g. "10,000 of 60,000 training images"
    mode_histogram: tuple[int, ...] = ()  # of points with known modes
    notes: dict[str, str] = field(default_factory=dict)  # words that go with some figures
    pairs: Pairs | None = field(default=None, compare=False, repr=False)  # where memorisation found
    extractor_id: str = ""  # differs where figures of the same extractor do not compare

    def to_json(self) -> dict[str, Any]:
        """Plain values for `result.json`; NaN and infinity become null, which JSON can hold."""
        values = {
            name: value if math.isfinite(value) else None for name, value in self.values.items()
        }
        notes = {"notes": dict(self.notes)} if self.notes else {}
        if self.mode_histogram:
            return {
                "values": values,
                **notes,
                "modes": len(self.mode_histogram),
                "samples": self.samples,
                "real": self.real,
                "mode_histogram": list(self.mode_histogram),
            }
        return {
            "values": values,
            **notes,
            "extractor": self.extractor,
            "extractor_id": self.extractor_id,
            "scaling": self.scaling,
            "samples": self.samples,
            "real_samples": self.real_samples,
            "real": self.real,
            "class_histogram": list(self.class_histogram),
            "real_class_shares": list(self.real_class_shares),
        }

    @property
    def header(self) -> str:
        """What was compared with what, and by which extractor."""
        extractor = f"by {self.extractor}, inputs in {self.scaling}, " if self.extractor else "of "
        real = self.real or f"{self.real_samples:,} real images"
        return f"scores {extractor}{self.samples:,} samples against {real}"

    def lines(self, metrics: Sequence[str] | None = None) -> list[str]:
        """For the terminal: the header, and all metrics or some, in the order given."""
        if metrics is None:
            metrics = [
                metric.name
                for metric in METRICS.values()
                if self.values.keys() >= set(metric.value_names)
            ]
        figures = {
            **self.values,
            **self.notes,
            "classes": len(self.class_histogram),
            "class_histogram": " ".join(map(str, self.class_histogram)),
            "modes": len(self.mode_histogram),
            "mode_histogram": " ".join(map(str, self.mode_histogram)),
        }
        shown = (METRICS[name].lines(figures) for name in dict.fromkeys(metrics))
        return [self.header, *(line for lines in shown for line in lines)]
