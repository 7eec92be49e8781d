"""The job script that `remuda slurm` prints."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from remuda.errors import STOPPED

_SCRIPT = """\
#!/usr/bin/env bash
#SBATCH --job-name={name}
#SBATCH --nodes={nodes}
#SBATCH --ntasks={tasks}          # one for the master, which needs little, and {workers} workers
#SBATCH --cpus-per-task={threads}
#SBATCH --time={time}
#SBATCH --output=%x-%j.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:USR1@{notice}  # this many seconds before the end: save, and queue again

# One run folder for the job, however often it is queued again.
run={run}
if [ -f "$run/config.yaml" ]; then
    arguments=(resume "$run")
else
    arguments=(train {words} "run.dir=\\"$run\\"")
fi

pid= told=
trap 'told=USR1; [ -z "$pid" ] || kill -USR1 "$pid"' USR1  # the time is nearly up
trap 'told=TERM; [ -z "$pid" ] || kill -TERM "$pid"' TERM  # cancelled: saved, not queued again
# mpiexec rather than srun, which ends all tasks when one is lost; remuda starts and watches it.
{remuda} "${{arguments[@]}}" --engine mpi --workers $((SLURM_NTASKS - 1)) &
pid=$!
[ -z "$told" ] || kill -"$told" "$pid"  # it came while remuda was being started
wait "$pid"
code=$?
# A signal ends `wait` early: go on waiting for what it asked for.
while kill -0 "$pid" 2>/dev/null; do
    wait "$pid"
    code=$?
done
if [ "$code" -gt 128 ]; then
    wait "$pid"
    code=$?
fi
if [ "$code" -eq {stopped} ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
"""


@dataclass(frozen=True)
class Request:
    """What a job asks of Slurm."""

    nodes: int
    tasks: int
    threads: int
    time: str
    notice: int


def job_script(
    name: str, words: Sequence[str], run: str | None, request: Request, command: Sequence[str]
) -> str:
    """A script for sbatch that trains `words`, survives lost ranks and requeues itself."""
    folder = shlex.quote(run) if run else f"runs/{name}-$SLURM_JOB_ID"
    return _SCRIPT.format(
        name=name,
        nodes=request.nodes,
        tasks=request.tasks,
        workers=request.tasks - 1,
        threads=request.threads,
        time=request.time,
        notice=request.notice,
        run=folder,
        words=shlex.join(words),
        remuda=shlex.join(command),
        stopped=STOPPED,
    )
