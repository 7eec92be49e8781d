"""How good are runs on digits in the eyes of a classifier that had no part in choosing anything?

    python -m benchmarks.second_opinion RUN [RUN ...] [-n 50000] [--json FILE] [--data-dir DIR]

Draws samples of each finished run's mixture, with the same seed for all, and prints two figures by
`second_classifier.py`: the Fréchet distance of its logits and the total variation distance of its
classes, once against MNIST's 60,000 training images and once against its 10,000 test images. MNIST
must lie in DIR or REMUDA_DATA, or in the cache of an earlier download.

The first row compares the two sets of real images: FID 0.28, TVD 0.0084. The classifier has learnt
the training images and is a little surer of them, so that a generator's distance to the test
images is the fairer one. 50,000 samples of a small network take four seconds of one core.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import remuda
from benchmarks.second_classifier import load_second_classifier
from remuda.cli.view import ScoringBar, scoring
from remuda.config import DataSettings
from remuda.data.formats.mnist import load_mnist
from remuda.data.places import WHERE_TO_PUT, cache_dir, data_dirs
from remuda.errors import ConfigError, DataError, RemudaError, shape_text
from remuda.files import write_json
from remuda.metrics import Extractor, SampleStatistics, fid_logits, tvd
from remuda.metrics.reference import extract
from remuda.streams import stream_key

SEED = 0
CHUNK = 1000
FLOOR = "real: training against test images"
SPLITS = {"train": "training images", "test": "test images"}

Figures = dict[str, dict[str, float]]


def main(words: Sequence[str] | None = None) -> int:
    """The exit code; a user's mistake is one line on standard error."""
    arguments = _arguments(words)
    torch.set_num_threads(1)
    try:
        judge(arguments.runs, arguments.samples, arguments.data_dir, arguments.json)
    except RemudaError as error:
        print(f"second_opinion: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def judge(runs: Sequence[Path], samples: int, data_dir: str | None, json: Path | None) -> None:
    """Print the table and write the file."""
    if samples < 2:
        raise ConfigError(f"-n {samples}: not allowed; allowed: a whole number at least 2")
    ensembles = {str(run): _grey_28x28(run) for run in runs}
    extractor = load_second_classifier()
    # Printed afterwards: a progress bar takes over the standard output.
    with scoring() as progress:
        images = {split: _mnist(split, data_dir) for split in SPLITS}
        total = sum(map(len, images.values())) + samples * len(ensembles)
        pace = _seconds_per_image(extractor, next(iter(ensembles.values())))
        progress.started(total, total * pace, "judging")
        real = {
            split: statistics(extractor, torch.split(items, CHUNK), progress)
            for split, items in images.items()
        }
        rows = {FLOOR: figures(dict.fromkeys(SPLITS, real["train"]), real["test"])}
        for name, ensemble in ensembles.items():
            rows[name] = figures(real, statistics(extractor, drawn(ensemble, samples), progress))
    print(f"{samples:,} samples each, seen by {extractor.name}")
    print(_table(rows), flush=True)
    if json is not None:
        write_json(json, _record(extractor, samples, rows))


def statistics(
    extractor: Extractor, parts: Iterable[Tensor], progress: ScoringBar | None = None
) -> SampleStatistics:
    """What the classifier sees in images that come in parts."""
    return SampleStatistics.of(extract(extractor, parts, progress))


def figures(real: Mapping[str, SampleStatistics], fake: SampleStatistics) -> Figures:
    """Both distances to each set of real images."""
    return {
        split: {"fid_logits": fid_logits(one, fake), "tvd": tvd(one, fake)}
        for split, one in real.items()
    }


def drawn(ensemble: remuda.Ensemble, samples: int) -> Iterator[Tensor]:
    """Samples in [-1, 1], in parts that need little memory."""
    for number, start in enumerate(range(0, samples, CHUNK)):
        yield ensemble.draw(min(CHUNK, samples - start), stream_key(SEED, 0, number, "second"))


def _grey_28x28(run: Path) -> remuda.Ensemble:
    ensemble = remuda.load(run)
    if ensemble.shape != (1, 28, 28):
        raise ConfigError(
            f"{run}: makes items of shape {shape_text(ensemble.shape)}; "
            "allowed: runs of 28x28 grey images"
        )
    return ensemble


def _mnist(split: str, folder: str | None) -> Tensor:
    settings = DataSettings.model_validate({"source": "mnist", "dir": folder, "split": split})
    folders = (*data_dirs(settings), cache_dir())
    places = (place for base in folders for place in (base, base / "mnist"))
    if not any(True for place in places for _ in place.glob("*-idx3-ubyte*")):
        raise DataError(f"MNIST not found; put its four files into {WHERE_TO_PUT}")
    return load_mnist(settings, mirrors=()).items[:]


def _seconds_per_image(extractor: Extractor, ensemble: remuda.Ensemble) -> float:
    started = time.perf_counter()
    statistics(extractor, drawn(ensemble, CHUNK))
    return (time.perf_counter() - started) / CHUNK


# ---------------------------------------------------------------------------- output


def _table(rows: Mapping[str, Figures]) -> str:
    width = max(map(len, rows))
    sides = "".join(f"{f'against {name}':>26}" for name in SPLITS.values())
    columns = f"{'FID (logits)':>17}{'TVD':>9}" * len(SPLITS)
    lines = [" " * width + sides, " " * width + columns]
    for name, row in rows.items():
        cells = (f"{one['fid_logits']:17.3f}{one['tvd']:9.4f}" for one in row.values())
        lines.append(f"{name:{width}}{''.join(cells)}")
    return "\n".join(lines)


def _record(extractor: Extractor, samples: int, rows: Mapping[str, Figures]) -> dict[str, Any]:
    return {
        "classifier": extractor.name,
        "classifier_id": extractor.identity,
        "samples": samples,
        "seed": SEED,
        "rows": rows,
    }


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="second_opinion", description=__doc__.splitlines()[0] if __doc__ else None
    )
    parser.add_argument("runs", metavar="RUN", nargs="+", type=Path, help="folder of a run")
    parser.add_argument("-n", "--samples", type=int, default=50_000, help="drawn of each run")
    parser.add_argument("--json", type=Path, help="file to write the figures to")
    parser.add_argument("--data-dir", help="folder with MNIST's files, or with mnist/ in it")
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main())
