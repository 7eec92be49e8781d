"""The same bits on all x86-64 machines: what libraries must be told before torch is loaded.

Importing this does not import torch. ATen, oneDNN and MKL choose their kernels by the processor
when they are first used; these variables choose for them, what every x86-64 machine since 2013 has.
"""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

from remuda.config import Config
from remuda.errors import ConfigError

VARIABLES = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_CBWR": "COMPATIBLE",
}
_CPUINFO = Path("/proc/cpuinfo")
_NEEDED = ("avx2", "fma")


def ensure_portable(config: Config) -> None:
    """Where a run is to be portable, make this process so; refuse where it is too late."""
    if not config.portable:
        return
    _check_processor()
    if is_portable():
        return
    if "torch" in sys.modules:
        exports = " ".join(f"{name}={value}" for name, value in VARIABLES.items())
        raise ConfigError(
            "portable=true: torch is already loaded in this process, with the kernels of this "
            f"machine; allowed: `export {exports}` before Python starts, or `remuda train`"
        )
    os.environ.update(VARIABLES)


def is_portable() -> bool:
    """Whether this process has, or will have, the kernels that all machines share."""
    return all(os.environ.get(name) == value for name, value in VARIABLES.items())


def _check_processor() -> None:
    if platform.machine() not in ("x86_64", "AMD64"):
        raise ConfigError(
            f"portable=true: this processor is {platform.machine()}; allowed: x86-64 machines"
        )
    try:
        lines = _CPUINFO.read_text().splitlines()
    except OSError:
        return  # the system does not say
    flags = next((line.split() for line in lines if line.startswith("flags")), None)
    missing = [name for name in _NEEDED if flags is not None and name not in flags]
    if missing:
        raise ConfigError(
            f"portable=true: this processor has no {' and no '.join(missing)}; allowed: x86-64 "
            "machines with AVX2 and FMA"
        )
