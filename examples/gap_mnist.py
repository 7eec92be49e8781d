"""Figures 6 and 7 of GAP on MNIST, at a size of minutes.

    python examples/gap_mnist.py spread --out runs/figure6
        trains 1, 2 and 4 members that swap; prints how far the discriminators' cost on held-out
        images lies from that on training images, and draws the learning curves

    python examples/gap_mnist.py frequency --out runs/figure7
        trains four members that swap every 0.1 to 1 epochs; prints that spread and the best FID

Every GAN gets the same number of updates. Runs that are done already are read from the folder.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

import numpy as np

from remuda import runtime
from remuda.analysis.curves import Costs, read_costs
from remuda.config import load_config
from remuda.figures import Curve, learning_curves
from remuda.store import RunFolder

# Few images, so that a discriminator can learn them by heart within minutes.
SMALL = (
    "data.limit=500",
    "data.validation=1000",
    "training.batch_size=50",
    "training.input_noise=[]",
    "network.width=16",
)
BATCHES = 10  # of an epoch
FREQUENCIES = (0.1, 0.3, 0.5, 0.7, 1.0)


def trained(
    folder: Path, members: int, share: float, seed: int, epochs: int, settings: list[str]
) -> Path:
    """A run of so many epochs, however often its members swap."""
    if not (folder / "result.json").is_file():
        rounds = max(2, epochs * BATCHES // max(1, round(share * BATCHES)))
        own = [f"grid=1x{members}", f"seed={seed}", f"rounds={rounds}", f"run.dir={folder}"]
        own += [f"method.swap_every={share}", f"run.checkpoint_every={rounds}", "members=[]"]
        runtime.train(load_config("gap-mnist", [*SMALL, *own, "run.sheet_every=0", *settings]))
    return folder


def shown(values: list[float]) -> str:
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):8.4f} ± {spread:6.4f}"


def late_gap(costs: Costs) -> float:
    """Mean cost on held-out less that on training images, over the second half of the rounds."""
    half = len(costs.rounds) // 2
    return float(np.nanmean(costs.validation[:, half:] - costs.train[:, half:]))


def spread(options: argparse.Namespace) -> None:
    """Figure 6."""
    print("members   mean |validation - training|   validation - training, second half")
    found: dict[int, list[float]] = {}
    curves = []
    for members in (1, 2, 4):
        costs = [
            read_costs(
                trained(
                    options.out / f"members{members}-seed{seed}",
                    members,
                    0.5,
                    seed,
                    options.epochs,
                    ["score.extractor=none", *options.settings],
                )
            )
            for seed in range(options.seeds)
        ]
        found[members] = [one.spread for one in costs]
        print(
            f"{members:7}   {shown(found[members]):>26}   {shown(list(map(late_gap, costs))):>28}"
        )
        first = costs[0]
        name = "single GAN" if members == 1 else f"GAP{members}"
        curves.append(Curve(name, first.rounds, first.train, first.validation))
    (options.out / "results.json").write_text(json.dumps(found, indent=2) + "\n")
    (options.out / "curves.png").write_bytes(learning_curves(curves))


def frequency(options: argparse.Namespace) -> None:
    """Figure 7."""
    print("epochs between swaps   mean |validation - training|          best FID")
    found: dict[float, dict[str, list[float]]] = {}
    for share in FREQUENCIES:
        rows: dict[str, list[float]] = {"spread": [], "fid": []}
        for seed in range(options.seeds):
            folder = options.out / f"every{share}-seed{seed}"
            trained(folder, 4, share, seed, options.epochs, options.settings)
            rows["spread"].append(read_costs(folder).spread)
            result = RunFolder(folder).result()
            assert result is not None
            rows["fid"].append(result["scores"]["values"]["fid"])
        found[share] = rows
        print(f"{share:20}   {shown(rows['spread']):>26}   {shown(rows['fid']):>18}")
    (options.out / "results.json").write_text(json.dumps(found, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("figure", choices=["spread", "frequency"])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE")
    options = parser.parse_args()
    {"spread": spread, "frequency": frequency}[options.figure](options)


if __name__ == "__main__":
    main()
