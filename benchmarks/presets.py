"""What presets give on this machine: trained with several seeds, timed, and scored twice.

    python -m benchmarks.presets PRESET [PRESET ...] [--seeds 5] [--first 0] [--runs DIR] \\
        [--out docs/results/presets]

Every seed is an ordinary `remuda train PRESET data.reference=test`, one after the other, timed from
start to end with everything it does. Finished runs in DIR are taken as they are, so an interrupted
command goes on. For each preset OUT then holds NAME.json, NAME.md and NAME.png (the picture of the
first seed); digits and MNIST are also seen by the second classifier (`second_opinion.py`).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.second_opinion import judge
from remuda.config import load_config
from remuda.files import write_json

SECOND = ("digits", "mnist")  # data that the second classifier knows
SAMPLES = 50_000


def main() -> None:
    arguments = _arguments()
    for preset in arguments.presets:
        seeds = range(arguments.first, arguments.first + arguments.seeds)
        runs = [trained(preset, seed, arguments.runs) for seed in seeds]
        report(preset, runs, arguments.first, arguments.out)


def trained(preset: str, seed: int, folder: Path) -> Path:
    """A finished run of a preset, with its wall-clock seconds beside it."""
    path = folder / f"{preset}-seed-{seed}"
    if (path / "result.json").is_file() and _timing(path).is_file():
        return path
    shutil.rmtree(path, ignore_errors=True)
    print(f"{preset}, seed {seed}", flush=True)
    words = ["train", preset, f"seed={seed}", "data.reference=test", f"run.dir={path}", "--plain"]
    started = time.perf_counter()
    subprocess.run([sys.executable, "-m", "remuda", *words], check=True)
    _timing(path).write_text(f"{time.perf_counter() - started:.1f}\n")
    return path


def _timing(path: Path) -> Path:
    return path.with_name(path.name + ".seconds")


def report(preset: str, runs: Sequence[Path], first: int, out: Path) -> None:
    """Write what the runs of one preset came to."""
    out.mkdir(parents=True, exist_ok=True)
    rows = [_row(path) for path in runs]
    if load_config(preset).data.source in SECOND:
        found = runs[0].with_name(f"{preset}-second.json")
        judge(runs, SAMPLES, None, found)
        for row, path in zip(rows, runs, strict=True):
            row["second"] = json.loads(found.read_text())["rows"][str(path)]["test"]
    summary = {
        "preset": preset,
        "cores": os.cpu_count(),
        "command": f"python -m benchmarks.presets {preset} --seeds {len(runs)} --first {first}",
        "runs": rows,
    }
    write_json(out / f"{preset}.json", summary)
    shutil.copyfile(runs[0] / "ensemble" / "samples.png", out / f"{preset}.png")
    text = "\n".join(_page(preset, summary)) + "\n"
    (out / f"{preset}.md").write_text(text)
    print(text)


def _row(path: Path) -> dict[str, Any]:
    result = json.loads((path / "result.json").read_text())
    return {
        "run": path.name,
        "seconds": float(_timing(path).read_text()),
        "cpu_seconds": result["cpu_seconds"],
        "batches": result["batches"],
        "scores": result["scores"]["values"],
        "extractor": result["scores"]["extractor"],
        "real": result["scores"]["real"],
    }


def _page(preset: str, summary: dict[str, Any]) -> list[str]:
    rows = summary["runs"]
    columns = {
        "seconds": [row["seconds"] for row in rows],
        "FID": [row["scores"]["fid"] for row in rows],
        "FID (logits)": [row["scores"].get("fid_logits") for row in rows],
        "TVD": [row["scores"].get("tvd") for row in rows],
    }
    if all("second" in row for row in rows):
        columns["FID, second classifier"] = [row["second"]["fid_logits"] for row in rows]
        columns["TVD, second classifier"] = [row["second"]["tvd"] for row in rows]
    kept = {name: values for name, values in columns.items() if None not in values}
    names = [row["run"].rpartition("-")[2] for row in rows]
    return [
        f"# {preset}",
        "",
        f"`{summary['command']}`, on {summary['cores']} cores. Seconds are from start to end of the"
        f" command; FID, FID (logits) and TVD by {rows[0]['extractor']} against {rows[0]['real']};",
        f"the second classifier compares the logits and classes of {SAMPLES:,} samples with those "
        "of MNIST's test images."
        if "FID, second classifier" in kept
        else "",
        "",
        "| seed | " + " | ".join(kept) + " |",
        "|---" * (len(kept) + 1) + "|",
        *(
            f"| {seed} | " + " | ".join(_text(values[place]) for values in kept.values()) + " |"
            for place, seed in enumerate(names)
        ),
        "| median | "
        + " | ".join(_text(statistics.median(values)) for values in kept.values())
        + " |",
        "",
        f"![samples of seed {names[0]}]({preset}.png)",
    ]


def _text(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.2f}" if value >= 1 else f"{value:.4f}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("presets", nargs="+", metavar="PRESET")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--runs", type=Path, default=Path("runs/presets"))
    parser.add_argument("--out", type=Path, default=Path("docs/results/presets"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
