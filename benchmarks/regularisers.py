"""What settings of training cost or save: CPU time of a batch with them over one without.

All variants train interleaved in one run, one thread, minima over repetitions: noise hits all
alike. Batches of 100 digits (MLP of cellular-digits), and of a small DCGAN with `--dcgan`.

    python benchmarks/regularisers.py [--repeat 15] [--dcgan]
"""

from __future__ import annotations

import argparse

import torch

from benchmarks.measuring import interleave
from benchmarks.step import BATCHES, Training
from remuda.config import load_config

R1 = ("training.r1=0.25", "training.r1_every=4")
EVERY = ("training.r1=0.25", "training.r1_every=1")
DEVIATION = ("network.minibatch_stddev=10",)
VARIANTS = {
    "neither": (),
    "R1 on every 4th batch": R1,
    "R1 on every batch": EVERY,
    "minibatch deviation, groups of 10": DEVIATION,
    "both (every 4th batch, groups of 10)": (*R1, *DEVIATION),
    # Layer norm and spectral norm, which the DCGAN has here, are alternatives.
    "layer norm in the discriminator": (
        "network.layer_norm=discriminator",
        "network.spectral_norm=false",
    ),
    "fakes shared by both turns": ("training.share_fakes=true",),
    "warm-up and cosine": ("training.warmup=100", "training.schedule=cosine", "rounds=100"),
}
DCGAN = ("network={family: dcgan, width: 8, spectral_norm: true}",)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--dcgan", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    common = [f"training.batches_per_round={BATCHES}", *(DCGAN if options.dcgan else ())]
    works = {
        name: Training(load_config("cellular-digits", [*common, *words]), rivals=0).by_hand
        for name, words in VARIANTS.items()
    }
    times = interleave(works, options.repeat)
    for name, found in times.items():
        print(
            f"{name:38}{found.least / BATCHES * 1e3:7.3f} ms CPU per batch, "
            f"ratio {found.over(times['neither'])['least']:.2f}"
        )


if __name__ == "__main__":
    main()
