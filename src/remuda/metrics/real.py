"""The real side of live scores: statistics of real items, looked at once per data set and machine.

Every process of a run needs them, and so does the next run on the same data. They are kept on disk,
named by all that they depend on; a file that is damaged or missing costs time only.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from remuda.errors import StoreError
from remuda.files import write_atomically
from remuda.metrics.classifier import tensors_digest
from remuda.metrics.collapse import typical_distance
from remuda.metrics.extractors import AnyExtractor
from remuda.metrics.statistics import EXPECTATIONS, SampleStatistics

FORMAT = 1
FEWEST_KEPT = 2000  # items; to look at fewer takes less than a tenth of a second
_TYPICAL = "typical"
_COUNT = "count"
# Of the first processor in /proc/cpuinfo: two generations may share a name.
_PROCESSOR = ("vendor", "cpu family", "model", "stepping", "flags", "CPU ", "Features")
_KERNELS = ("MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS", "ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RealStatistics:
    """What live scores need to know about real items."""

    statistics: SampleStatistics
    typical: float  # the distance of neighbours, the yardstick of near-duplicates

    @classmethod
    def of(cls, extractor: AnyExtractor, items: Tensor) -> RealStatistics:
        features = extractor(items)
        return cls(SampleStatistics.of(features), typical_distance(features.features))

    def tensors(self) -> dict[str, Tensor]:
        found = {name: getattr(self.statistics, name).contiguous() for name in EXPECTATIONS}
        return {
            **found,
            _COUNT: torch.tensor(self.statistics.count),
            _TYPICAL: torch.tensor(self.typical, dtype=torch.float64),
        }

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> RealStatistics:
        statistics = SampleStatistics(
            count=int(tensors[_COUNT]), **{name: tensors[name] for name in EXPECTATIONS}
        )
        return cls(statistics, float(tensors[_TYPICAL]))


def kept_statistics(
    folder: Path,
    extractor: AnyExtractor,
    fingerprint: str,
    chosen: Tensor,
    items: Callable[[Tensor], Tensor],
) -> RealStatistics:
    """Statistics of the chosen items of some data: those in the folder, or made and kept there."""
    if len(chosen) < FEWEST_KEPT:
        return RealStatistics.of(extractor, items(chosen))
    path = folder / _name(extractor, fingerprint, chosen)
    found = _read(path)
    if found is None:
        found = RealStatistics.of(extractor, items(chosen))
        _write(path, found)
    return found


def _name(extractor: AnyExtractor, fingerprint: str, chosen: Tensor) -> str:
    digest = hashlib.blake2b(chosen.contiguous().numpy().data, digest_size=16)
    # Another processor, torch or number of threads rounds differently, and a live score must not
    # depend on who looked at the data first.
    machine = (
        torch.__version__,
        torch.backends.cpu.get_cpu_capability(),
        torch.get_num_threads(),
        _processor(),
    )
    parts = (FORMAT, fingerprint, extractor.identity, extractor.scaling, *machine)
    digest.update("|".join(map(str, parts)).encode())
    return f"{extractor.name.split()[0]}-{digest.hexdigest()}.safetensors"


def _processor() -> str:
    """The kind of processor, where the system says so, and what libraries were told of it."""
    told = [f"{name}={value}" for name, value in sorted(os.environ.items()) if name in _KERNELS]
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    first = lines[: lines.index("")] if "" in lines else lines
    return " ".join([*told, *(line for line in first if line.startswith(_PROCESSOR))])


def _read(path: Path) -> RealStatistics | None:
    """None where there is no such file, or it is damaged."""
    try:
        with safe_open(path, framework="pt") as file:
            # Copied: some products have other bits where numbers lie as they do in a file.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
            wanted = (file.metadata() or {}).get("sha256")
        if wanted == tensors_digest(tensors):
            return RealStatistics.from_tensors(tensors)
    except (OSError, SafetensorError, KeyError, ValueError):
        pass
    return None


def _write(path: Path, found: RealStatistics) -> None:
    tensors = found.tensors()
    try:
        # Not worth waiting for the disk. Workers that start together may write it together: they
        # write the same, and whoever reads half of it finds that it is damaged.
        content = save(tensors, {"sha256": tensors_digest(tensors)})
        write_atomically(path, content, durable=False)
    except StoreError as error:
        _log.warning("the statistics of the real items are not kept: %s", error)
