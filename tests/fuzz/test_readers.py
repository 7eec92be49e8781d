"""No file, however damaged, gets more out of a reader than one line for the user.

`make fuzz` reads 10,000 inputs per reader. An input is repeated by its number, for example
`FUZZ_FIRST=4711 FUZZ_INPUTS=1 make fuzz ARGS="-k npz"`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.fuzz import data_targets, record_targets
from tests.fuzz.child import fuzz
from tests.fuzz.target import Target

TARGETS = [*data_targets.TARGETS, *record_targets.TARGETS]
FIRST = int(os.environ.get("FUZZ_FIRST", "0"))
INPUTS = int(os.environ.get("FUZZ_INPUTS", "150"))


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_no_input_breaks_a_reader(target: Target, tmp_path: Path) -> None:
    failures = fuzz(target, FIRST, INPUTS, tmp_path)
    assert failures == [], "\n".join(map(str, failures))
