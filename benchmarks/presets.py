"""What presets give on this machine: trained with several seeds, timed, and scored twice.

    python -m benchmarks.presets PRESET [PRESET ...] [--seeds 5] [--first 0] [--runs DIR] \\
        [--out docs/results/presets]

Every seed is an ordinary `remuda train PRESET data.reference=test`, one after the other, timed from
start to end with everything it does. A preset that takes days is measured with fewer rounds, as in
"gap-mnist rounds=2": what its page says, too. Finished runs in DIR are taken as they are, so an
interrupted command goes on. For each preset OUT then holds NAME.json, NAME.md and NAME.png (the
picture of the first seed); digits and MNIST are also seen by the second classifier
(`second_opinion.py`). Where generators are averages over their training, the raw weights of those
that were chosen are scored as well.
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
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.second_opinion import judge
from remuda.config import load_config
from remuda.data import NAMED, load_dataset
from remuda.files import write_json
from remuda.gan.parcels import GENERATOR, strip_prefix
from remuda.methods import mean_tensors
from remuda.runs.loading import load
from remuda.runs.prepare import Run
from remuda.runs.scoring import score_ensemble
from remuda.runs.store import RunFolder

SECOND = ("digits", "mnist")  # data that the second classifier knows
FIGURES = {
    "fid": "FID",
    "fid_logits": "FID (logits)",
    "tvd": "TVD",
    "is": "IS",
    "accuracy": "class accuracy",
    "modes_covered": "modes covered",
    "high_quality": "high quality",
    "mode_kl": "KL of modes",
}
SAMPLES = 50_000


def main() -> None:
    arguments = _arguments()
    for words in arguments.presets:
        preset, *changes = words.split()
        seeds = range(arguments.first, arguments.first + arguments.seeds)
        runs = [trained(preset, changes, seed, arguments.runs) for seed in seeds]
        report(preset, changes, runs, arguments.first, arguments.out)


def trained(preset: str, changes: Sequence[str], seed: int, folder: Path) -> Path:
    """A finished run of a preset, with its wall-clock seconds beside it."""
    path = folder / "-".join((preset, *changes, "seed", str(seed)))
    if (path / "result.json").is_file() and _timing(path).is_file():
        return path
    shutil.rmtree(path, ignore_errors=True)
    print(f"{preset}, seed {seed}", flush=True)
    words = ["train", preset, *changes, f"seed={seed}", f"run.dir={path}", "--plain"]
    known = NAMED.get(load_config(preset, changes).data.source)
    if known is not None and known.has_test_split:
        words.append("data.reference=test")
    started = time.perf_counter()
    subprocess.run([sys.executable, "-m", "remuda", *words], check=True)
    _timing(path).write_text(f"{time.perf_counter() - started:.1f}\n")
    return path


def _timing(path: Path) -> Path:
    return path.with_name(path.name + ".seconds")


def report(
    preset: str, changes: Sequence[str], runs: Sequence[Path], first: int, out: Path
) -> None:
    """Write what the runs of one preset came to."""
    out.mkdir(parents=True, exist_ok=True)
    rows = [_row(path) for path in runs]
    if load_config(preset).data.source in SECOND:
        found = runs[0].with_name(f"{preset}-second.json")
        judge(runs, SAMPLES, None, found)
        for row, path in zip(rows, runs, strict=True):
            row["second"] = json.loads(found.read_text())["rows"][str(path)]["test"]
    words = " ".join((preset, *changes))
    quoted = f"'{words}'" if changes else words
    summary = {
        "preset": preset,
        "changes": list(changes),
        "cores": os.cpu_count(),
        "command": f"python -m benchmarks.presets {quoted} --seeds {len(runs)} --first {first}",
        "runs": rows,
    }
    write_json(out / f"{preset}.json", summary)
    shutil.copyfile(runs[0] / "ensemble" / "samples.png", out / f"{preset}.png")
    text = "\n".join(_page(summary)) + "\n"
    (out / f"{preset}.md").write_text(text)
    print(text)


def _row(path: Path) -> dict[str, Any]:
    result = json.loads((path / "result.json").read_text())
    raw = _raw_scores(path)
    return {
        "run": path.name,
        "seconds": float(_timing(path).read_text()),
        "cpu_seconds": result["cpu_seconds"],
        "batches": result["batches"],
        "scores": result["scores"]["values"],
        "extractor": result["scores"].get("extractor"),
        "real": result["scores"]["real"],
        **({} if raw is None else {"raw": raw}),
    }


def _raw_scores(path: Path) -> dict[str, float] | None:
    """The scores of the same ensemble of raw generators; None where they keep no average."""
    folder = RunFolder.open(path)
    config = folder.config()
    if config.training.average is None:
        return None
    ensemble, result = load(path), json.loads((path / "result.json").read_text())
    parcels = folder.load_checkpoint(folder.checkpoints()[-1])
    raw = {cell: strip_prefix(GENERATOR, one.tensors) for cell, one in parcels.items()}
    if result.get("merged", False):
        raw = dict.fromkeys(raw, mean_tensors([raw[int(cell)] for cell in result["mixture"]]))
    members = tuple(replace(one, state=raw[one.cell]) for one in ensemble.members)
    run = Run.prepare(config, load_dataset(config.data), folder=folder)
    scores = score_ensemble(run, replace(ensemble, members=members))
    return None if scores is None else dict(scores.values)


def _page(summary: Mapping[str, Any]) -> list[str]:
    preset, rows = summary["preset"], summary["runs"]
    columns = {
        "seconds": [row["seconds"] for row in rows],
        "CPU seconds": [row["cpu_seconds"] for row in rows],
    }
    for key, name in FIGURES.items():
        columns[name] = [row["scores"].get(key) for row in rows]
    columns["FID, second classifier"] = [row.get("second", {}).get("fid_logits") for row in rows]
    columns["TVD, second classifier"] = [row.get("second", {}).get("tvd") for row in rows]
    columns["FID without average"] = [row.get("raw", {}).get("fid") for row in rows]
    kept = {name: values for name, values in columns.items() if None not in values}
    names = [row["run"].rpartition("-")[2] for row in rows]
    judged = rows[0]["extractor"] or "distance to the modes"
    lines = [
        f"# {preset}",
        "",
        f"`{summary['command']}`, on {summary['cores']} cores. Seconds are from start to end of the"
        f" command, CPU seconds those of all cells; scores by {judged}, against {rows[0]['real']}.",
    ]
    if summary["changes"]:
        changes = ", ".join(f"`{one}`" for one in summary["changes"])
        lines.append(f"**Shortened**: with {changes}, so this is not what the whole preset gives.")
    if "FID, second classifier" in kept:
        lines.append(
            f"The second classifier compares the logits and classes of {SAMPLES:,} samples with "
            "those of MNIST's test images."
        )
    if "FID without average" in kept:
        lines.append(
            "The last column is of the raw weights of the same generators, not averaged over their "
            "training."
        )
    return [
        *lines,
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
