"""What it saves to enlarge and convolve in one step: a training batch of the class networks.

    python benchmarks/enlarge.py [--width 128] [--repeat 4]

The same DC-CGAN trains by turns with `EnlargingConv` and with its two steps one after the other.
Prints the least CPU milliseconds per batch of either, and their ratio.
"""

from __future__ import annotations

import argparse
import time

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, interpolate

from remuda.config import load_config
from remuda.data import load_dataset
from remuda.gan.networks.convolutions import EnlargingConv
from remuda.methods import build_method


def two_steps(layer: nn.Conv2d, x: Tensor) -> Tensor:
    return conv2d(interpolate(x, scale_factor=2), layer.weight, layer.bias, padding=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--repeat", type=int, default=4)
    arguments = parser.parse_args()
    settings = ["data=digits", "data.limit=300", f"network.width={arguments.width}"]
    config = load_config("dccgan-mnist", settings)
    dataset = load_dataset(config.data)
    cell = build_method(config).cell(0, dataset, torch.arange(len(dataset)), None)
    cell.round = 1
    one_step = EnlargingConv.forward
    least: dict[str, float] = {}
    for _ in range(arguments.repeat):
        for name, forward in (("one step", one_step), ("two steps", two_steps)):
            setattr(EnlargingConv, "forward", forward)  # noqa: B010 - for the types
            start = time.process_time()
            batches = cell.train(cell.gan).batches
            spent = 1000 * (time.process_time() - start) / batches
            least[name] = min(spent, least.get(name, spent))
    for name, milliseconds in least.items():
        print(f"{name:10}{milliseconds:8.1f} ms per batch")
    print(f"ratio     {least['two steps'] / least['one step']:8.2f}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
