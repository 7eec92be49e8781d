"""Does one GAN per label beat one conditional GAN, and that one an unconditional one?

    python -m benchmarks.class_order --data digits --images 400000 --seeds 0 1 2

Trains DC-GAN, DC-CGAN (told the label), class-parallel DC-CGAN and class-parallel W-CGAN on the
same data until each has seen the same number of images in all, and scores samples by the data
set's own classifier: Inception Score, FID, and, where samples have labels, the share that the
classifier takes for what it was asked for. Prints a row per run and the mean over seeds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import torch

from benchmarks.real_data import cifar10_overrides
from remuda.config import load_config
from remuda.data import load_dataset
from remuda.parallel import training
from remuda.parallel.engines import Engine

ARMS = {
    "dcgan": "dcgan-{}",
    "dccgan": "dccgan-{}",
    "class-parallel": "class-parallel-{}",
    "wclass": "wclass-{}",
}
SETS = {"digits": "mnist", "mnist": "mnist", "cifar10": "cifar10"}
COLUMNS = ("is", "fid", "tvd", "accuracy")


def main() -> None:
    arguments = _arguments()
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        keep = arguments.keep or Path(scratch)
        for seed in arguments.seeds:
            for arm in arguments.arms:
                row = train(arm, seed, arguments, keep / f"{arm}-{arguments.data}-{seed}")
                print(json.dumps(row), flush=True)
                rows.append(row)
    print(table(rows))


def train(arm: str, seed: int, arguments: argparse.Namespace, folder: Path) -> dict[str, object]:
    preset = ARMS[arm].format(SETS[arguments.data])
    overrides = [
        f"data={arguments.data}",
        *cifar10_overrides(arguments.data),
        f"seed={seed}",
        f"run.dir={folder}",
        f"network.width={arguments.width}",
        f"training.batch_size={arguments.batch}",
        f"network.epsilon={arguments.epsilon}",
        "run.sheet_every=0",
        "run.checkpoint_every=1000",
        "score.samples=500",
    ]
    config = load_config(preset, overrides)
    classes = len(load_dataset(config.data).label_names)
    cells = classes if config.method.name == "class_parallel" else 1
    batches = arguments.images // (cells * config.training.batch_size)
    if batches == 0:
        raise SystemExit(f"--images {arguments.images}: no batch for each of {cells} GANs")
    rounds = min(arguments.rounds, batches)
    overrides += [f"rounds={rounds}", f"training.batches_per_round={batches // rounds}"]
    if arm == "wclass":
        rate = f"training.learning_rate={arguments.critic_rate}"
        overrides += ["training.optimiser=rmsprop", rate]
    config = load_config(preset, overrides)
    engine = Engine(arguments.engine)
    started = time.perf_counter()
    result = training.train(config, engine=engine)
    seconds = time.perf_counter() - started
    assert result.scores is not None
    values = result.scores.to_json()["values"]
    images = cells * rounds * config.training.batch_size * (batches // rounds)
    return {
        "arm": arm,
        "seed": seed,
        "images": images,
        "seconds": round(seconds, 1),
        **{name: values[name] for name in COLUMNS if name in values},
    }


def table(rows: list[dict[str, object]]) -> str:
    lines = ["", f"{'':16}" + "".join(f"{column:>18}" for column in COLUMNS)]
    for arm in dict.fromkeys(str(row["arm"]) for row in rows):
        cells = []
        for column in COLUMNS:
            found = [float(str(row[column])) for row in rows if row["arm"] == arm and column in row]
            spread = statistics.stdev(found) if len(found) > 1 else 0.0
            cells.append(f"{statistics.mean(found):.3f} ± {spread:.3f}" if found else "-")
        lines.append(f"{arm:16}" + "".join(f"{cell:>18}" for cell in cells))
    return "\n".join(lines)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", choices=SETS, default="digits")
    parser.add_argument("--images", type=int, default=400_000, help="seen in all, by each method")
    parser.add_argument("--width", type=int, default=128, help="of the networks; the tables' 128")
    parser.add_argument("--batch", type=int, default=100, help="images per batch")
    parser.add_argument("--epsilon", type=float, default=1e-5, help="of batch norm; tables: 0.8")
    parser.add_argument(
        "--critic-rate", type=float, default=5e-5, help="W-CGAN's learning rate, with RMSprop"
    )
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--engine", choices=("local", "process", "auto"), default="local")
    parser.add_argument("--keep", type=Path, help="keep the run folders here")
    return parser.parse_args()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
