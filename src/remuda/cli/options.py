"""What several commands take, and how they speak of themselves."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from remuda.errors import ConfigError

Words = Annotated[
    Optional[list[str]],  # noqa: UP045 - typer reads this form
    typer.Argument(
        metavar="[PRESET|FILE.yaml] [KEY=VALUE]...",
        help="a preset (see `remuda presets`) or a YAML file, then settings such as grid=3x3, "
        "rounds=20 or method.tournament_size=2",
        show_default=False,
    ),
]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="a run folder, e.g. runs/NAME")]
DataDir = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option("--data-dir", help="folder with data files (default: REMUDA_DATA)"),
]


def load_words(words: list[str] | None, data_dir: Path | None) -> Any:
    from remuda.config import load_config

    given = list(words or [])
    sources = [word for word in given if "=" not in word]
    if len(sources) > 1:
        raise ConfigError(
            f"{' '.join(sources)}: expected one preset or YAML file, then settings as KEY=VALUE"
        )
    overrides = [word for word in given if "=" in word]
    if data_dir is not None:
        overrides.append(f"data.dir={json.dumps(str(data_dir), ensure_ascii=False)}")
    return load_config(sources[0] if sources else None, overrides)


def quoted(path: Path) -> str:
    """A path as it can be pasted into a shell."""
    return shlex.quote(str(path))


def own_command() -> str:
    """How to call remuda from here: by name where it is on the PATH, else by its path."""
    if shutil.which("remuda"):
        return "remuda"
    script = Path(sys.argv[0]).absolute()
    if script.name == "__main__.py":
        script = Path(sys.executable).with_name("remuda")
    here = Path.cwd()
    return str(script.relative_to(here)) if script.is_relative_to(here) else str(script)
