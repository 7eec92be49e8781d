"""What a run was started with, and whether it goes on with the same."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from remuda.config import Config
from remuda.config.base import Settings
from remuda.errors import ConfigError, StoreError
from remuda.files import VERSION
from remuda.runs.machine import this_machine
from remuda.runs.prepare import Run, with_absolute_paths
from remuda.runs.records import DataSummary, Environment
from remuda.runs.store import RunFolder

# Settings a resumed run may change: they decide where it is kept and ends and what its result is
# compared with, not what it trains.
# (That data found elsewhere are the same data is checked by their fingerprint.)
MAY_CHANGE = (
    *("name", "rounds", "exact", "run.", "devices."),
    *("data.dir", "data.source", "data.reference"),
)


def environment(run: Run) -> dict[str, Any]:
    return {
        "remuda": VERSION,
        "revision": revision(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "platform": platform.platform(),
        "host": platform.node(),
        "cores": os.cpu_count(),
        "threads": run.config.threads,
        "machine": this_machine().model_dump(),
        "config": with_absolute_paths(run.config).model_dump(mode="json"),
        "data": {
            "name": run.dataset.name,
            "items": len(run.dataset),
            "fingerprint": run.dataset.fingerprint,
        },
    }


def check_environment(folder: RunFolder, run: Run) -> list[str]:
    """Refuse other data or settings; warnings where other software may round differently."""
    then, now = folder.env(), environment(run)
    if then.config is None and then.id is not None:  # the earliest versions wrote neither
        raise StoreError(
            f"{folder.path / 'env.json'}: config is missing, which says what the run was started "
            "with; allowed: the file as it was, or a new run"
        )
    for key, old, new in changed_settings(then.config or {}, run.config):
        if not key.startswith(MAY_CHANGE):
            raise StoreError(
                f"{folder.path / 'config.yaml'}: {key} was {old} when the run started and is {new} "
                f"now; allowed: {old}, or a new run"
            )
    data = DataSummary.model_validate(now["data"])
    if then.data.fingerprint != data.fingerprint:
        raise StoreError(
            f"{folder.path}: the data changed since the run started: {_described(then.data)} then, "
            f"{_described(data)} now"
        )
    return [
        *(
            f"{key} was {getattr(then, key)} and is {now[key]}: weights may differ in the last bits"
            for key in ("torch", "remuda", "platform")
            if getattr(then, key) != now[key]
        ),
        *_check_machine(then, run.config),
    ]


def _check_machine(then: Environment, config: Config) -> list[str]:
    """Whether the run was begun where the same bits come out; older versions did not say."""
    old, new = then.machine, this_machine()
    if old is None or old.fingerprint == new.fingerprint or config.exactness == "ignore":
        return []
    text = (
        f"this machine computes other bits than the one that the run began on: {old} then, {new} "
        "now"
    )
    if config.exact == "require":
        raise ConfigError(f"exact=require: {text}; allowed: a machine like that one, or exact=warn")
    return [f"{text}: weights will differ in the last bits"]


def _described(data: DataSummary) -> str:
    return f"{data.items} items of {data.name} ({data.fingerprint})"


def changed_settings(
    then: Mapping[str, Any], now: Settings, prefix: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    """The settings that are not what they were, by dotted key, with both values.

    A setting that did not exist then has the default that means what was done then.
    """
    if not then:  # nobody wrote down what they were
        return
    values = now.model_dump(mode="json")
    if values.keys() - then.keys():
        # Not validated: entries of lists may have keys that have no default.
        then = {**type(now).model_construct().model_dump(mode="json"), **then}
    for name in sorted(then):
        old, new = then[name], values.get(name)
        section: Any = getattr(now, name, None)
        if isinstance(old, dict) and isinstance(section, Settings):
            yield from changed_settings(old, section, f"{prefix}{name}.")
        elif _are_entries(old, section):
            for number, (before, entry) in enumerate(zip(old, section, strict=True)):
                yield from changed_settings(before, entry, f"{prefix}{name}[{number}].")
        elif old != new:
            yield prefix + name, old, new


def _are_entries(then: Any, now: Any) -> bool:
    """Whether these are as many settings in a list as there are now."""
    return (
        isinstance(then, list)
        and isinstance(now, tuple)
        and len(then) == len(now)
        and all(isinstance(entry, dict) for entry in then)
        and all(isinstance(entry, Settings) for entry in now)
    )


def revision() -> str | None:
    """The git revision of remuda's own source, where it is a checkout."""
    try:
        found = subprocess.run(
            ["git", "rev-parse", "HEAD"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None
