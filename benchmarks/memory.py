"""Where the memory of a run goes: master, workers, data, and one more cell.

    python -m benchmarks.memory [--quick]

Trains `cellular-mnist` (where REMUDA_DATA has no MNIST: on the embedded digits) on two worker
processes and watches them from outside, in /proc. What is *private* to a process is its RSS minus
what it shares with others: libraries, the data, parcels that more than one process looks at. The
data and the parcels lie in a folder in shared memory, whose size is added up by itself. Beside them
stands what a process takes that does nothing but import torch, and then makes an optimiser.

Then larger grids are trained, whose cells have the same networks. What one cell more costs is the
growth of all memory that is not the data: the workers' own and the parcels in shared memory. It is
compared with what a cell cannot do without: weights, moments, and one parcel.

Last, the time to gather a batch from bytes is compared with gathering it from floats.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch

from benchmarks.measuring import interleave, print_table, publish
from remuda.config import DataSettings, load_config
from remuda.data import StoredItems, load_dataset
from remuda.errors import RemudaError
from remuda.parallel.shared_memory import MEMORY, PREFIX
from remuda.runs.prepare import Run

MB = 2**20
DATA_FILES = ("items", "labels", "validation", "validation-labels")
POLL_SECONDS = 0.1
METHODS = {
    "averaging neighbours": (),
    "by loss": ("method.exchange=loss", "method.ensemble=neighbourhood"),
    "gap": ("method=gap",),
}


def smaps(process: int) -> dict[str, int]:
    """The kernel's account of a process, in bytes; empty where it has ended."""
    with contextlib.suppress(OSError, ValueError):
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()[1:]
        return {line.split(":")[0]: 1024 * int(line.split()[1]) for line in lines}
    return {}


def descendants(process: int) -> Iterator[int]:
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{process}/task").iterdir():
            for child in map(int, (thread / "children").read_text().split()):
                yield child
                yield from descendants(child)


@dataclass
class Footprint:
    """The most that was seen of a run, in bytes."""

    private: dict[int, int] = field(default_factory=dict)  # by process: RSS minus shared
    own: dict[int, int] = field(default_factory=dict)  # by process: its heap, without mapped files
    data: int = 0  # in shared memory
    parcels: int = 0  # in shared memory

    def look(self, master: int) -> None:
        for process in (master, *descendants(master)):
            found = smaps(process)
            private = found.get("Private_Clean", 0) + found.get("Private_Dirty", 0)
            self.private[process] = max(private, self.private.get(process, 0))
            self.own[process] = max(found.get("Anonymous", 0), self.own.get(process, 0))
        data = parcels = 0
        for folder in MEMORY.glob(f"{PREFIX}{master}-*"):
            # A parcel has two names: its round's and that of the newest.
            files = {
                size[0]: (path, size[1]) for path in folder.rglob("*") if (size := _size(path))
            }
            data += sum(size for path, size in files.values() if path.name in DATA_FILES)
            parcels += sum(size for path, size in files.values() if path.name not in DATA_FILES)
        self.data, self.parcels = max(data, self.data), max(parcels, self.parcels)

    def workers(self, master: int) -> list[int]:
        """Those of the processes that train: any helper of Python's is small."""
        return [one for one in self.own if one != master and self.own[one] > 50 * MB]


def _size(path: Path) -> tuple[int, int] | None:
    with contextlib.suppress(OSError):
        if path.is_file():
            return path.stat().st_ino, path.stat().st_size
    return None


@dataclass(frozen=True)
class Watched:
    """What a run took, in bytes."""

    master: int
    worker: int  # the larger of both
    workers: int  # the heaps of both
    data: int
    parcels: int


def watch(words: list[str]) -> Watched:
    """Train a run on two workers and look at it from outside until it has ended."""
    command = [sys.executable, "-m", "remuda", "train", *words, "--engine", "process"]
    with tempfile.TemporaryDirectory() as folder:
        training = subprocess.Popen(
            [*command, "--workers", "2", f"run.dir={folder}"], stdout=subprocess.DEVNULL
        )
        found = Footprint()
        while training.poll() is None:
            found.look(training.pid)
            time.sleep(POLL_SECONDS)
    if training.returncode:
        raise SystemExit(f"memory: {' '.join(command)} failed")
    workers = found.workers(training.pid)
    return Watched(
        found.private[training.pid],
        max(found.private[worker] for worker in workers),
        sum(found.own[worker] for worker in workers),
        found.data,
        found.parcels,
    )


IMPORTS = {
    "import torch": "import torch",
    "... and its optimisers": "import torch; torch.optim.Adam([torch.zeros(1)])",
}


def imports() -> dict[str, int]:
    """What is private to a process after the import of torch alone, by what it imports."""
    found = {}
    for name, code in IMPORTS.items():
        program = f"{code}; print('imported', flush=True); input()"
        with subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            account = smaps(process.pid)
            process.kill()
        found[name] = account["Private_Clean"] + account["Private_Dirty"]
    return found


def source() -> str:
    try:
        load_dataset(DataSettings(source="mnist", limit=1))
    except RemudaError:
        return "digits"
    return "mnist"


def words_for(data: str, grid: str, rounds: int, *others: str) -> list[str]:
    return [
        "cellular-mnist",
        f"data.source={data}",
        f"grid={grid}",
        f"rounds={rounds}",
        "training.batches_per_round=5",
        "score.final_samples=1000",
        *others,
    ]


def cell_bytes(words: list[str]) -> dict[str, int]:
    """What a cell of such a run cannot do without."""
    config = load_config(
        words[0], [*words[1:], "data.source=digits", "training.batches_per_round=1"]
    )
    run = Run.prepare(config, load_dataset(DataSettings(source="digits")))
    cell = run.cell(0)
    cell.round = 1
    cell.train(cell.gan)
    learners = sum(
        value.nbytes for _, learner in cell.gan.roles for value in learner.tensors().values()
    )
    return {"weights and moments": learners, "parcel": cell.parcel().nbytes}


def grids(data: str, sides: tuple[int, int], *, quick: bool) -> dict[str, dict[str, float]]:
    """By method: MB of one more cell, from a smaller to a larger grid."""
    found: dict[str, dict[str, float]] = {}
    small, large = sides
    more = large**2 - small**2
    for name, method in list(METHODS.items())[: 1 if quick else None]:
        words = (*method, "score.samples=100")  # faster, and of no concern to how memory grows
        needed = cell_bytes(words_for(data, "2x2", 1, *words))
        less, most = (watch(words_for(data, f"{side}x{side}", 3, *words)) for side in sides)
        own, parcels = most.workers - less.workers, most.parcels - less.parcels
        floor = sum(needed.values())
        found[name] = {
            "weights and moments": needed["weights and moments"] / MB,
            "a parcel": needed["parcel"] / MB,
            "in workers": own / more / MB,
            "in shared memory": parcels / more / MB,
            "over": (own + parcels) / more / floor,
        }
    return found


def gathering(repeat: int) -> dict[str, float]:
    """Gathering batches from bytes, in units of gathering them from floats."""
    torch.set_num_threads(1)
    rng = torch.Generator().manual_seed(1)
    pixels = torch.randint(0, 256, (60_000, 1, 28, 28), generator=rng, dtype=torch.uint8)
    batches = torch.randperm(60_000, generator=rng).reshape(-1, 100)
    stored = {"bytes": StoredItems(pixels), "floats": StoredItems(StoredItems(pixels)[:])}

    def gather(items: StoredItems) -> None:
        for picked in batches:
            items[picked]

    times = interleave(
        {name: lambda items=items: gather(items) for name, items in stored.items()},  # type: ignore[misc]
        repeat,
    )
    return {
        **times["bytes"].over(times["floats"]),
        "bytes_us": 1e6 * times["bytes"].least / len(batches),
        "floats_us": 1e6 * times["floats"].least / len(batches),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="smaller grids, one method")
    quick = parser.parse_args().quick
    data = "digits" if quick else source()
    run = watch(words_for(data, "2x2", 2 if quick else 5))
    figures: Mapping[str, float] = {
        "master": run.master / MB,
        "worker": run.worker / MB,
        **{f"  {name}": size / MB for name, size in imports().items()},
        "data, shared": run.data / MB,
        "parcels, shared": run.parcels / MB,
    }
    print_table(f"cellular-mnist on {data}, 2x2, two workers", ["", "MB"], list(figures.items()))
    gathered = gathering(3 if quick else 15)
    print_table(
        "A batch of 100 images",
        ["stored as", "µs"],
        [("bytes", gathered["bytes_us"]), ("floats", gathered["floats_us"])],
    )
    cells = grids(data, (2, 3) if quick else (3, 6), quick=quick)
    head = ["one more cell, MB", *next(iter(cells.values()))]
    print_table(
        "Growth with the grid", head, [(name, *row.values()) for name, row in cells.items()]
    )
    publish(
        "memory", {"data": data, "run": figures, "cells": cells, "gather": gathered}, quick=quick
    )


if __name__ == "__main__":
    main()
