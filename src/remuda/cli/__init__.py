"""The `remuda` command. Each command imports torch and other heavy packages only when it runs."""

from __future__ import annotations

import errno
import os
import signal
import sys
from typing import Annotated, NoReturn, cast

import typer

from remuda.cli import analysis, cluster, compare, inputs, results, training
from remuda.cli.printing import complain, say
from remuda.errors import RemudaError
from remuda.files import VERSION

# typer exports only this subclass of its usage errors (unknown option, missing argument, ...).
_UsageError = cast("type[Exception]", typer.BadParameter.__base__)

app = typer.Typer(
    name="remuda",
    help="Train populations of GANs in parallel; sample, score and compare the results.",
    epilog="Start with `remuda train`: it trains on embedded digits for a few minutes and ends "
    "with a picture.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for group in (training, cluster, results, compare, analysis, inputs):
    app.add_typer(group.app)


def main() -> NoReturn:
    """Run a command. A user's mistake ends in one line and an exit code, never a traceback."""
    try:
        code = app(sys.argv[1:] or ["--help"], prog_name="remuda", standalone_mode=False)
        sys.stdout.flush()
    except RemudaError as error:
        complain(*error.lines)
        code = error.exit_code
    except _UsageError as error:
        complain(_usage_message(error))
        code = 2
    except OSError as error:
        # Files that cannot be written are a StoreError; what is left is the standard output.
        if error.errno != errno.ENOSPC:
            raise
        complain(f"the output cannot be written: {error.strerror}")
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is buffered is flushed at exit
        code = 3
    except (KeyboardInterrupt, typer.Abort):
        complain("interrupted")
        code = 128 + signal.SIGINT
    sys.exit(code)


def _usage_message(error: Exception) -> str:
    """What is wrong with the command line and which help to read, in one line."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "remuda"
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    return f"{' '.join(message.split()).rstrip('.')} (see {command} --help)"


def _show_version(wanted: bool) -> None:
    if wanted:
        say(f"remuda {VERSION}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    del version
