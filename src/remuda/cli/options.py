"""Arguments and options that several commands share, and how commands refer to themselves."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from remuda.errors import ConfigError

if TYPE_CHECKING:
    from remuda.config import Config


def whole_number(minimum: int) -> Callable[[str], int]:
    """A parser for options whose error names the value and what is allowed."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = minimum - 1
        if number < minimum:
            raise typer.BadParameter(f"{text}; allowed: a whole number, at least {minimum}")
        return number

    return parse


Arguments = Annotated[
    Optional[list[str]],  # noqa: UP045 - typer reads this form
    typer.Argument(
        metavar="PRESET|FILE.yaml|KEY=VALUE",
        help="A preset (see `remuda presets`) or a YAML file, then settings such as grid=3x3, "
        "rounds=20 or method.tournament_size=2.",
        show_default=False,
    ),
]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, e.g. runs/NAME.")]
DataDir = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        "--data-dir",
        metavar="FOLDER",
        help="Where to look for data files.  [default: the environment variable REMUDA_DATA]",
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        "--seed",
        metavar="N",
        parser=whole_number(0),
        help="The same seed gives the same samples.",
    ),
]


def load_arguments(arguments: list[str] | None, data_dir: Path | None = None) -> Config:
    """The configuration that the arguments of a command describe."""
    from remuda.config import load_config

    sources = [argument for argument in arguments or [] if "=" not in argument]
    if len(sources) > 1:
        raise ConfigError(
            f"{' '.join(sources)}: expected one preset or YAML file, then settings as KEY=VALUE"
        )
    overrides = [argument for argument in arguments or [] if "=" in argument]
    if data_dir is not None:
        overrides.append(f"data.dir={json.dumps(str(data_dir), ensure_ascii=False)}")
    return load_config(sources[0] if sources else None, overrides)


def quoted(path: Path | str) -> str:
    """A path that can be pasted into a shell."""
    return shlex.quote(str(path))


def own_command() -> str:
    """How to call remuda from here: by name if it is on the PATH, otherwise by its path."""
    if shutil.which("remuda"):
        return "remuda"
    script = Path(sys.argv[0]).absolute()
    if script.name == "__main__.py":
        script = Path(sys.executable).with_name("remuda")
    here = Path.cwd()
    return str(script.relative_to(here)) if script.is_relative_to(here) else str(script)
