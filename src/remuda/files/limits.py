"""How much memory the content of a file may take."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path

from remuda.errors import ConfigError, DataError, RemudaError

VARIABLE = "REMUDA_MEMORY"  # how much a file may take: 4G, 500M
_SHARE = 0.5  # of the machine's memory, unless the variable says otherwise
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_CGROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def check_memory(
    where: str | Path, needed: int, what: str = "", error: type[RemudaError] = DataError
) -> None:
    """Refuse a file before it is read, if what it declares would take more than is allowed."""
    allowed = memory_limit()
    if needed > allowed:
        holding = f" for {what}" if what else ""
        raise error(
            f"{where}: would take {size_text(needed)}{holding}; allowed: {size_text(allowed)} "
            f"({VARIABLE}=SIZE changes it, for example {VARIABLE}=64G)"
        )


def memory_limit() -> int:
    """The bytes that the content of one file may take."""
    given = os.environ.get(VARIABLE, "").strip()
    if not given:
        return int(machine_memory() * _SHARE) or 2**63
    found = re.fullmatch(r"(\d{1,15})\s*([KMGT]?)(i?B)?", given, re.IGNORECASE)
    if found is None or int(found[1]) == 0:
        raise ConfigError(f"{VARIABLE}={given}: allowed: a size such as 500M or 64G")
    return int(found[1]) * _UNITS[found[2].upper()]


@cache
def machine_memory() -> int:
    """Bytes of memory that this process may use; 0 where the system does not say."""
    try:
        found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return 0
    for name in _CGROUPS:  # of a container or a batch job
        try:
            limit = Path(name).read_text().strip()
        except OSError:
            continue
        if limit.isdecimal():
            found = min(found, int(limit))
    return found


def size_text(size: int) -> str:
    """A number of bytes as messages write it: 512 bytes, 3.6 GB."""
    number, unit = float(size), "bytes"
    for larger in ("kB", "MB", "GB", "TB"):
        if number < 1000:
            break
        number, unit = number / 1000, larger
    return f"{number:,.0f} {unit}" if unit == "bytes" else f"{number:,.1f} {unit}"
