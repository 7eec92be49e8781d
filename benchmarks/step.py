"""How close training of the fully connected networks comes to their matrix products alone.

Three things take turns: the bare matrix products of a round (the limit), a round of `Cell.train`
as autograd does it (as it was), and as it is done by hand. One thread, CPU time; the bits of the
last two are compared as well. Then whole cell-iterations, everything counted that a cell does in a
round (gathering, selection, training, scoring, publishing, checkpoints), over the same products.

    python -m benchmarks.step [--repeat 8] [--quick]
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.measuring import interleave, print_table, publish
from remuda.config import Config, load_config
from remuda.data import load_dataset
from remuda.gan.cell import Cell
from remuda.gan.game import Rivals
from remuda.gan.gradients import ByHand
from remuda.methods import build_method, resolved
from remuda.parallel import training
from remuda.parallel.engines import Engine
from remuda.runs.store import RunFolder

BATCHES = 60
Product = tuple[int, int, int]  # rows, inner, columns


def linear_sizes(config: Config, items: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    hidden = list(config.network.hidden)  # type: ignore[attr-defined]
    generator = [config.network.latent, *hidden, items]
    discriminator = [items, *reversed(hidden), 1]
    return (
        list(itertools.pairwise(generator)),
        list(itertools.pairwise(discriminator)),
    )


def forward(rows: int, layers: list[tuple[int, int]]) -> list[Product]:
    return [(rows, before, after) for before, after in layers]


def weight_gradients(rows: int, layers: list[tuple[int, int]]) -> list[Product]:
    return [(after, rows, before) for before, after in layers]


def input_gradients(rows: int, layers: list[tuple[int, int]]) -> list[Product]:
    return [(rows, after, before) for before, after in layers]


def operands(products: list[Product]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [
        (torch.randn(rows, inner), torch.randn(inner, columns)) for rows, inner, columns in products
    ]


def gemm_round(config: Config, items: int, opponents: int) -> Callable[[], None]:
    """The matrix products that a round cannot do without, and nothing else.

    The network that learns is one, its opponents are several, and each has matrices of its own, as
    in training: products of matrices that never leave the cache would be too low a floor.
    """
    rows = config.training.batch_size
    generator, discriminator = linear_sizes(config, items)
    generator_learns = operands(
        forward(rows, generator)
        + weight_gradients(rows, generator)
        + input_gradients(rows, generator[1:])
    )
    discriminator_learns = operands(
        forward(2 * rows, discriminator)
        + weight_gradients(2 * rows, discriminator)
        + input_gradients(2 * rows, discriminator[1:])
    )
    discriminators = [
        operands(forward(rows, discriminator) + input_gradients(rows, discriminator))
        for _ in range(opponents)
    ]
    generators = [operands(forward(rows, generator)) for _ in range(opponents)]
    plan = []
    for batch in range(BATCHES):
        if batch % (config.training.skip_n_disc_steps + 1) == 0:
            plan += generators[batch % opponents] + discriminator_learns
        plan += discriminators[batch % opponents] + generator_learns

    def run() -> None:
        for left, right in plan:
            torch.mm(left, right)

    return run


class Training:
    """Rounds of real training of one cell, opponents of a neighbourhood included."""

    def __init__(self, config: Config, rivals: int) -> None:
        dataset = load_dataset(config.data)
        config = resolved(config, dataset)
        self.cell = build_method(config).cell(0, dataset, torch.arange(len(dataset)), None)
        guests = [self.cell.gan.clone() for _ in range(rivals)]
        self._rivals = Rivals(
            [guest.generator.network.eval() for guest in guests],
            [guest.discriminator.network.eval() for guest in guests],
        )

    def by_hand(self) -> None:
        self.cell.round += 1
        self.cell.train(self.cell.gan, self._rivals)

    def by_autograd(self) -> None:
        usual = ByHand.of
        ByHand.of = classmethod(lambda *_: None)  # type: ignore[assignment]
        try:
            self.by_hand()
        finally:
            ByHand.of = usual  # type: ignore[method-assign]


def steps(preset: str, rivals: int, repeat: int) -> dict[str, Any]:
    """A batch of training, by hand and by autograd, over its matrix products."""
    config = load_config(preset, ["data=digits", f"training.batches_per_round={BATCHES}"])
    by_hand, by_autograd = Training(config, rivals), Training(config, rivals)
    times = interleave(
        {
            "products": gemm_round(config, 28 * 28, opponents=rivals + 1),
            "autograd": by_autograd.by_autograd,
            "by hand": by_hand.by_hand,
        },
        repeat,
    )
    limit = times["products"]
    return {
        "same_bits": _same_bits(by_hand.cell, by_autograd.cell),
        **{
            name: {**found.to_json(BATCHES), "ratio": found.over(limit)}
            for name, found in times.items()
        },
    }


def _same_bits(left: Cell, right: Cell) -> bool:
    mine, theirs = left.parcel().tensors, right.parcel().tensors
    return all(torch.equal(value, theirs[name]) for name, value in mine.items())


def iterations(preset: str, batches: int, repeat: int) -> dict[str, Any]:
    """Whole cell-iterations of a run in this process, over the matrix products of as many batches.

    The first round is left out: what is done once is no part of an iteration.
    """
    config = load_config(preset, [*WHOLE, f"training.batches_per_round={batches}"])
    opponents = 5 if config.method.name == "cellular" else 1
    products = gemm_round(config, 28 * 28, opponents)
    limits: list[float] = []
    wholes: list[float] = []
    shares: list[float] = []
    for _ in range(repeat):
        begun = time.process_time()
        for _ in range(batches // BATCHES):
            products()
        limits.append(time.process_time() - begun)
        events = _round_events(config)
        whole = _mean([event["cpu_seconds"] for event in events])
        seconds = [(event["seconds"]["train"], sum(event["seconds"].values())) for event in events]
        shares.append(sum(train for train, _ in seconds) / sum(every for _, every in seconds))
        wholes.append(whole)
    limit = min(limits)
    return {
        "batches": batches,
        "products_s": limit,
        "iteration_s": min(wholes),
        "ratio": min(wholes) / limit,
        "training_share": statistics.median(shares),
        "median_ratio": statistics.median(w / t for w, t in zip(wholes, limits, strict=True)),
    }


WHOLE = ["data=digits", "rounds=3", "grid=2x2", "run.sheet_every=0"]


def _round_events(config: Config) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        changed = config.model_copy(
            update={"run": config.run.model_copy(update={"dir": str(path)})}
        )
        training.train(changed, engine=Engine("local"))
        events = RunFolder(path).events()
    return [event for event in events if event["event"] == "round" and event["round"] > 1]


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


PRESETS = {"cellular-mnist-paper": 4, "cellular-mnist": 0}  # rivals that a cell meets in training


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeat", type=int, default=8)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    repeat = 3 if options.quick else options.repeat
    found = {preset: steps(preset, rivals, repeat) for preset, rivals in PRESETS.items()}
    names = ("products", "autograd", "by hand")
    rows = [
        (preset, name, figures[name]["least_ms"], figures[name]["median_ms"],
         figures[name]["ratio"]["least"], figures[name]["ratio"]["median"])
        for preset, figures in found.items()
        for name in names
    ]  # fmt: skip
    head = ("", "", "least ms", "median ms", "ratio of least", "median ratio")
    print_table("A training batch of 100, CPU time, one thread", head, rows)
    equal = all(figures["same_bits"] for figures in found.values())
    print(f"autograd and by hand: {'the same bits' if equal else 'OTHER BITS'}")
    whole = {
        preset: iterations(preset, 60 if options.quick else 600, 1 if options.quick else 2)
        for preset in PRESETS
    }
    print_table(
        "A whole cell-iteration, CPU time",
        ("", "batches", "products s", "iteration s", "share of training", "iteration / products"),
        [
            (preset, one["batches"], one["products_s"], one["iteration_s"], one["training_share"],
             one["ratio"])
            for preset, one in whole.items()
        ],
    )  # fmt: skip
    publish("step", {"steps": found, "iterations": whole}, quick=options.quick)


if __name__ == "__main__":
    main()
