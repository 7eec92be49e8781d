"""Runs of an experiment, trained only where they are not there yet."""

from __future__ import annotations

from pathlib import Path

from remuda.config import Config, load_config
from remuda.parallel import training
from remuda.runs.prepare import with_absolute_paths
from remuda.runs.store import RunFolder


def trained(preset: str, settings: list[str], folder: Path) -> Path:
    """Train a run with these settings, or finish or reuse the one in the folder."""
    return trained_config(load_config(preset, [*settings, f"run.dir={folder}"]))


def trained_config(config: Config) -> Path:
    """The same from a whole configuration, which says where it is kept."""
    assert config.run.dir is not None
    folder = Path(config.run.dir)
    if not (folder / "config.yaml").is_file():
        training.train(config)
        return folder
    there = RunFolder.open(folder).config()
    wanted, found = (
        with_absolute_paths(one).model_dump(exclude={"run", "data"}) for one in (config, there)
    )
    changed = [name for name, value in wanted.items() if found[name] != value]
    if changed:
        raise SystemExit(
            f"{folder} was trained with other settings ({', '.join(changed)}); "
            "allowed: the same ones, or another --out"
        )
    training.resume(folder)
    return folder
