"""Who started this process, a launcher of several tasks or the user alone, and its cores."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

# Size and rank, as each launcher tells its tasks. An MPI launcher inside a batch job knows better
# than the batch system, so it comes first.
_VARIABLES = (
    ("mpiexec", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("mpiexec", "PMI_SIZE", "PMI_RANK"),
    ("srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
)


@dataclass(frozen=True)
class Launcher:
    """A launcher, how many tasks it started, and which of them this is."""

    name: str
    tasks: int
    task: int


def find_launcher(environ: Mapping[str, str]) -> Launcher | None:
    """The launcher of this process, if there is one."""
    for name, size, rank in _VARIABLES:
        tasks, task = environ.get(size, ""), environ.get(rank, "0")
        if tasks.isdecimal() and task.isdecimal():
            return Launcher(name, int(tasks), int(task))
    return None


def allocated_tasks(environ: Mapping[str, str]) -> int | None:
    """How many tasks the batch system gave the whole job, if there is one."""
    tasks = environ.get("SLURM_NTASKS", "")
    return int(tasks) if tasks.isdecimal() else None


def usable_cores() -> int:
    """The cores that this process may use; all of them where the system does not say."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
