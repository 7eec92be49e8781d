"""The `remuda` command inside the test's own process: no interpreter to start, torch loaded once.

For everything that needs no signal, terminal or kill; those use `tests.tiny_runs.Command`.
"""

from __future__ import annotations

import io
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

from remuda.cli import main
from tests.tiny_runs import on_an_engine


def remuda(folder: Path, *arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command called in a folder."""
    output, errors = io.StringIO(), io.StringIO()
    argv = mock.patch.object(sys, "argv", ["remuda", *on_an_engine(arguments)])
    with chdir(folder), argv, redirect_stdout(output), redirect_stderr(errors):
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
    assert isinstance(code, int)
    return code, output.getvalue(), errors.getvalue()
