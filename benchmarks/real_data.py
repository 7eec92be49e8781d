"""CIFAR-10 in its published form, for benchmarks and tests.

A data folder may hold it packed, with a script beside it that restores the published files. That
takes ten seconds, so it is done once per machine, into the user's cache.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

from remuda.data.places import cache_dir


def cifar10_overrides(source: str) -> list[str]:
    """Settings that make `data=cifar10` find its files below REMUDA_DATA; none for other data."""
    folder = os.environ.get("REMUDA_DATA")
    if source != "cifar10" or not folder:
        return []
    return [f"data.dir={published_cifar10(Path(folder))}"]


def published_cifar10(data: Path) -> Path:
    """A folder with `cifar-10-batches-py`: the data folder itself, or an unpacked copy."""
    packed = data / "cifar-10"
    script = packed / "unpack.py"
    if not script.is_file():
        return data
    target = cache_dir() / "cifar-10"
    final, unfinished = target / "cifar-10-batches-py", target / "unfinished"
    target.mkdir(parents=True, exist_ok=True)
    # Several test processes may ask at the same time: the first unpacks, the others wait for it.
    with (target / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not final.is_dir():
            shutil.rmtree(unfinished, ignore_errors=True)
            command = [sys.executable, str(script), str(packed), str(unfinished)]
            subprocess.run(command, check=True, capture_output=True)
            unfinished.rename(final)
    return target
