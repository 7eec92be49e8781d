"""Figures 6 and 7 of GAP on MNIST, at a size of minutes.

    python examples/gap_mnist.py spread --out runs/figure6
        trains 1, 2 and 4 members that swap; prints how far the discriminators' cost on held-out
        images lies from that on training images, and draws the learning curves

    python examples/gap_mnist.py frequency --out runs/figure7
        trains four members that swap every 0.1 to 1 epochs; prints how far their costs on held-out
        images lie from each other (standard deviation among the members), and draws them

Every GAN gets the same number of updates, up to a swap. Runs that are done already are read from
the folder.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

from reuse import trained

from remuda.analysis.curves import Costs, read_costs
from remuda.analysis.figures import Curve, learning_curves

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


def member_costs(
    folder: Path, members: int, share: float, seed: int, options: argparse.Namespace
) -> Costs:
    """Of a run of so many epochs, however often its members swap."""
    rounds = max(2, options.epochs * BATCHES // max(1, round(share * BATCHES)))
    own = [f"grid=1x{members}", f"seed={seed}", f"rounds={rounds}", "members=[]"]
    own += [f"method.swap_every={share}", f"run.checkpoint_every={rounds}", "run.sheet_every=0"]
    settings = [*SMALL, *own, "score.extractor=none", *options.settings]
    return read_costs(trained("gap-mnist", settings, folder))


def shown(values: list[float]) -> str:
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):9.4f} ± {spread:6.4f}   "


def spread(options: argparse.Namespace) -> None:
    """Figure 6."""
    measures = ("spread", "averaged_spread", "late_gap")
    print("         |validation - training|                    validation - training,")
    print("members  by member          of averaged curves  second half")
    found: dict[int, dict[str, list[float]]] = {}
    curves = []
    for members in (1, 2, 4):
        costs = [
            member_costs(options.out / f"members{members}-seed{seed}", members, 0.5, seed, options)
            for seed in range(options.seeds)
        ]
        found[members] = {name: [getattr(one, name) for one in costs] for name in measures}
        print(f"{members:7}" + "".join(shown(found[members][name]) for name in measures))
        first = costs[0]
        name = "single GAN" if members == 1 else f"GAP{members}"
        curves.append(Curve(name, first.rounds, first.train, first.validation))
    (options.out / "results.json").write_text(json.dumps(found, indent=2) + "\n")
    (options.out / "curves.png").write_bytes(learning_curves(curves))


def frequency(options: argparse.Namespace) -> None:
    """Figure 7."""
    print("epochs between swaps  among members       |validation - training|")
    measures = ("deviation", "spread")
    found: dict[float, dict[str, list[float]]] = {}
    curves = []
    for share in FREQUENCIES:
        costs = [
            member_costs(options.out / f"every{share}-seed{seed}", 4, share, seed, options)
            for seed in range(options.seeds)
        ]
        found[share] = {name: [getattr(one, name) for one in costs] for name in measures}
        print(f"{share:20}" + "".join(shown(values) for values in found[share].values()))
        first = costs[0]
        curves.append(Curve(f"every {share}", first.rounds, first.train, first.validation))
    (options.out / "results.json").write_text(json.dumps(found, indent=2) + "\n")
    (options.out / "curves.png").write_bytes(learning_curves(curves))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("figure", choices=["spread", "frequency"])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE")
    options = parser.parse_intermixed_args()
    {"spread": spread, "frequency": frequency}[options.figure](options)


if __name__ == "__main__":
    main()
