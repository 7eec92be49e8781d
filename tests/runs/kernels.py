"""Other kinds of processors, as far as the variables of its libraries let a machine act as one.

A library reads its variables when it first computes. So a process that has loaded torch and
computed nothing is forked for each kind: that takes a hundredth of the time of another interpreter.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence

from remuda.runs.records import Machine

_PROGRAM = """
import json, os, sys
import torch
from remuda.runs.machine import this_machine

for variables in json.load(sys.stdin):
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        threads = int(variables.pop("threads", "1"))
        os.environ.update(variables)
        torch.set_num_threads(threads)
        print(this_machine().model_dump_json(), flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""


def machines(kinds: Sequence[Mapping[str, str]]) -> list[Machine]:
    """The machine that a process takes itself for, with each of these sets of variables."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        input=json.dumps(list(map(dict, kinds))),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    found = [Machine.model_validate_json(line) for line in done.stdout.splitlines()]
    assert len(found) == len(kinds), done.stderr
    return found
