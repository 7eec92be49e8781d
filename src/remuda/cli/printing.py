"""What commands print, line by line: text of others is shown and never obeyed.

Names, paths and messages may hold what a terminal obeys, and a line end in one of them would make
it look like two. Tables and the live view do the same in `tables.py`.
"""

from __future__ import annotations

import sys

from remuda.errors import visible


def say(*lines: str) -> None:
    """Print lines; without any, an empty one."""
    for line in lines or ("",):
        print(visible(line))


def complain(*lines: str, then: str = "") -> None:
    """Print lines to standard error, each by the name of the program; `then` what is to be done."""
    for line in lines:
        print(f"remuda: {visible(line)}", file=sys.stderr, flush=True)
    if then:
        print(f"  {visible(then)}", file=sys.stderr, flush=True)
