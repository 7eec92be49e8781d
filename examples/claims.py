"""Repeat an experiment behind a claim of README or docs: one command each.

    python examples/claims.py                        lists them
    python examples/claims.py NAME [--out FOLDER]    plans, trains, compares (default: runs/NAME)
    python examples/claims.py NAME --show            only prints the commands

`claims.yaml` beside this file says what each asks and compares; docs/results/NAME is what was found
here. Interrupted, the same command goes on. More words are passed on to the command: `--jobs 1`.
"""

from __future__ import annotations

import argparse
import difflib
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
OPTIONS = ("seeds", "budget", "score", "metrics", "target", "collapsed")

Claim = Mapping[str, Any]


def claims() -> dict[str, Claim]:
    """All of them, by the name of their folder under docs/results."""
    found: dict[str, Claim] = yaml.safe_load((HERE / "claims.yaml").read_text())
    return found


def arms(claim: Claim) -> list[str]:
    """As `remuda compare` takes them: 'NAME=PRESET key=value …'."""
    common = claim.get("all", "")
    return [f"{name}={words} {common}".strip() for name, words in claim["arms"].items()]


def commands(claim: Claim, out: Path) -> list[list[str]]:
    """What to run, one after the other, from the root of the repository."""
    words = ["remuda", "compare", *arms(claim)]
    for option in OPTIONS:
        if option in claim:
            words += [f"--{option}", str(claim[option])]
    then = [
        [str(out) if word == "OUT" else word for word in line.split()]
        for line in claim.get("then", ())
    ]
    return [[*words, "--out", str(out)], *then]


def runnable(words: list[str]) -> list[str]:
    """The same with this interpreter, wherever the command is installed."""
    first, *rest = words
    return [sys.executable, *(["-m", "remuda"] if first == "remuda" else []), *rest]


def show_all() -> None:
    for name, claim in claims().items():
        print(name)
        print(textwrap.fill(claim["asks"], 96, initial_indent="    ", subsequent_indent="    "))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("name", nargs="?", help="which; without it, all are listed")
    parser.add_argument("--out", type=Path, help="where everything is kept (default: runs/NAME)")
    parser.add_argument("--show", action="store_true", help="only print the commands")
    options, more = parser.parse_known_args()
    if options.name is None:
        show_all()
        return 0
    known = claims()
    if options.name not in known:
        near = difflib.get_close_matches(options.name, known, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        sys.exit(f"{options.name}: no such claim; {hint}allowed: {', '.join(known)}")
    # The commands run in the repository, wherever this one was called.
    out = Path("runs") / options.name if options.out is None else options.out.absolute()
    first, *then = commands(known[options.name], out)
    for words in ([*first, *more], *then):
        print(shlex.join(words), flush=True)
        if not options.show:
            code = subprocess.run(runnable(words), cwd=ROOT).returncode
            if code:
                return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
