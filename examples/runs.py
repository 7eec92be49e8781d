"""A run of an experiment: trained now, or before with the same settings."""

from __future__ import annotations

from pathlib import Path

from remuda.config import load_config
from remuda.parallel import training
from remuda.runs.store import RunFolder


def trained(preset: str, settings: list[str], folder: Path) -> Path:
    """The folder of a finished run with these settings; one that was interrupted goes on."""
    config = load_config(preset, [*settings, f"run.dir={folder}"])
    if not (folder / "config.yaml").is_file():
        training.train(config)
        return folder
    there = RunFolder.open(folder).config()
    wanted, found = (one.model_dump(exclude={"run", "data"}) for one in (config, there))
    changed = [name for name, value in wanted.items() if found[name] != value]
    if changed:
        raise SystemExit(
            f"{folder} was trained with other settings ({', '.join(changed)}); "
            "allowed: the same ones, or another --out"
        )
    training.resume(folder)
    return folder
