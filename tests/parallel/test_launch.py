"""Who started this process, from what each launcher tells its tasks."""

from __future__ import annotations

import pytest

from remuda.parallel.launch import Launcher, allocated_tasks, find_launcher

SLURM = {"SLURM_NTASKS": "8", "SLURM_PROCID": "0", "SLURM_JOB_ID": "1"}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, None),
        ({"PATH": "/bin"}, None),
        # In a batch script, before any launcher: the user alone.
        (SLURM, None),
        (
            {"OMPI_COMM_WORLD_SIZE": "5", "OMPI_COMM_WORLD_RANK": "3"},
            Launcher("mpiexec", 5, 3),
        ),
        ({"PMI_SIZE": "2", "PMI_RANK": "1"}, Launcher("mpiexec", 2, 1)),
        (
            {**SLURM, "SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "2"},
            Launcher("srun", 4, 2),
        ),
        # mpiexec starts its daemons with srun, one per node: the ranks are mpiexec's.
        (
            {**SLURM, "SLURM_STEP_NUM_TASKS": "2", "OMPI_COMM_WORLD_SIZE": "8"},
            Launcher("mpiexec", 8, 0),
        ),
        ({"OMPI_COMM_WORLD_SIZE": "many"}, None),
    ],
)
def test_the_launcher_is_told_by_its_variables(
    environ: dict[str, str], expected: Launcher | None
) -> None:
    assert find_launcher(environ) == expected


def test_the_batch_system_says_how_many_tasks_there_are() -> None:
    assert allocated_tasks(SLURM) == 8
    assert allocated_tasks({}) is None
