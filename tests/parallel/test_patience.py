"""docs/parallel.md says how long anybody waits; here it is compared with the code."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

from remuda.parallel.protocol import Timeouts

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "remuda" / "parallel"
ROW = re.compile(r"^\|.*\| (\d+) s \|.*\| `([\w.]+)` \|$", re.MULTILINE)
TIMEOUTS = "protocol.Timeouts."
# How often somebody looks or speaks, and from when on something counts: nobody waits for others.
PACES = {
    "delays.QUIET_SECONDS",
    "master_state.STATUS_SECONDS",
    "master_state.WATCH_SECONDS",
    "shared_memory._SETTLED_SECONDS",
    "signals._IMPATIENT_SECONDS",
    "supervisor._LOOK_SECONDS",
    "supervisor._POLL_SECONDS",
    "transports.fork_server._REAP_SECONDS",
    "transports.mpi_thread._LIFE_SECONDS",
}


def documented() -> dict[str, float]:
    found = ROW.findall((ROOT / "docs" / "parallel.md").read_text("utf-8"))
    return {name: float(seconds) for seconds, name in found}


def value(name: str) -> float:
    if name.startswith(TIMEOUTS):
        return float(getattr(Timeouts(), name.removeprefix(TIMEOUTS)))
    module, _, constant = name.rpartition(".")
    return float(getattr(importlib.import_module(f"remuda.parallel.{module}"), constant))


def test_every_documented_wait_is_that_of_the_code() -> None:
    waits = documented()
    assert len(waits) > 20
    assert waits == {name: value(name) for name in waits}


def test_every_wait_of_the_code_is_documented() -> None:
    constants = set()
    for path in PACKAGE.rglob("*.py"):
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        for name in re.findall(r"^(\w+_SECONDS) =", path.read_text("utf-8"), re.MULTILINE):
            constants.add(f"{module}.{name}")
    assert constants - PACES == {name for name in documented() if not name.startswith(TIMEOUTS)}
    assert max(documented().values()) <= 300
