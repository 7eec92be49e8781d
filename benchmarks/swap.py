"""What swapping costs: the same GAP run with and without it, on the process engine, interleaved.

Prints the time of the routines that only swapping has (reading the partner's parcel, adopting its
discriminator) as a share of training time, from the events of the runs, and the wall-clock ratio.

    python benchmarks/swap.py [--preset gap-mnist] [--rounds 4] [--workers 2] [KEY=VALUE ...]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from remuda.config import load_config
from remuda.parallel import training
from remuda.parallel.engines import Engine
from remuda.runs.store import RunFolder

ROUTINES = ("gather", "swap", "train")


def seconds(path: Path) -> dict[str, float]:
    """CPU-busy time of each routine over all members and rounds; the first round swaps nothing."""
    events = [event for event in RunFolder(path).events() if event["event"] == "round"]
    later = [event["seconds"] for event in events if event["round"] > 1]
    found = {name: sum(part.get(name, 0.0) for part in later) for name in ROUTINES}
    return {**found, "rounds": float(len(later))}


def train(preset: str, overrides: list[str], folder: Path, workers: int) -> float:
    config = load_config(preset, [*overrides, f"run.dir={folder}"])
    engine = Engine("process", workers)
    return training.train(config, engine=engine).seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--preset", default="gap-mnist")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE")
    options = parser.parse_args()
    fixed = [f"rounds={options.rounds}", "run.sheet_every=0", "score.extractor=none"]
    spent = dict.fromkeys((*ROUTINES, "rounds"), 0.0)
    walls: dict[str, list[float]] = {"discriminators": [], "none": []}
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(options.repeat):
            for swap, wall in walls.items():
                folder = Path(scratch) / f"{swap}-{number}"
                more = [*fixed, *options.settings, f"method.swap={swap}"]
                wall.append(train(options.preset, more, folder, options.workers))
                if swap != "none":
                    for name, value in seconds(folder).items():
                        spent[name] += value
    share = (spent["gather"] + spent["swap"]) / spent["train"]
    ratio = min(walls["discriminators"]) / min(walls["none"])
    if options.json:
        print(json.dumps({"share": share, "wall_ratio": ratio, **spent}))
        return
    each = {name: spent[name] / spent["rounds"] * 1e3 for name in ROUTINES}
    print(f"{options.preset}, {options.workers} workers, {options.repeat} runs of each, by turns")
    print(f"training a member     {each['train']:9.1f} ms per round")
    print(f"reading its partner   {each['gather']:9.1f} ms per round (waiting included)")
    print(f"adopting its network  {each['swap']:9.1f} ms per round")
    print(f"adopting              {spent['swap'] / spent['train']:9.2%} of training (target: 2 %)")
    print(f"reading and adopting  {share:9.2%} of training")
    print(f"whole run             {ratio:9.3f} times the time without swapping")


if __name__ == "__main__":
    main()
