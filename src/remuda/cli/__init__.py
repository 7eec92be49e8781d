"""The `remuda` command. What needs torch is imported inside the command that needs it."""

from __future__ import annotations

import signal
import sys
from typing import Annotated, NoReturn

import typer

from remuda.cli import analysis as analysis
from remuda.cli import inputs, results, training
from remuda.errors import RemudaError
from remuda.files import VERSION

app = typer.Typer(
    name="remuda",
    help="Train populations of GANs in parallel, and sample, score and compare the result.",
    epilog="Start with `remuda train`: digits on a 2x2 grid, minutes, ends with a picture.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for part in (training, results, analysis, inputs):
    app.add_typer(part.app)


def main() -> NoReturn:
    """Run the command; a user's mistake ends in plain lines and an exit code, not a traceback."""
    try:
        app()
    except RemudaError as error:
        for line in str(error).splitlines():
            print(f"remuda: {line}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("remuda: interrupted", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)
    except BrokenPipeError:
        # The reader of a pipe went away (`remuda runs | head`); that is no error of ours.
        sys.stderr.close()
        sys.exit(0)
    sys.exit(0)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"remuda {VERSION}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="the version")
    ] = False,
) -> None:
    del version
