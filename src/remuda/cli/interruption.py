"""What Ctrl-C and the signals of a batch system do to a command that trains."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from remuda.cli.options import own_command, quoted
from remuda.cli.printing import complain
from remuda.errors import STOPPED, GoneError, RemudaError, StoreError
from remuda.parallel.signals import stop_if_asked, stop_is_under_way, stop_on

if TYPE_CHECKING:
    from remuda.cli.view import View


_BEFORE_TRAINING = "interrupted before training started"


class _Terminated(BaseException):
    """SIGTERM, SIGUSR1 or SIGHUP: leave as on Ctrl-C."""


@contextmanager
def interruptible(view: View) -> Iterator[None]:
    """Train inside this; an interruption or a full disk ends in how to continue the run."""
    with signals_raise() as received:
        try:
            yield
        except BaseException as error:
            stop_is_under_way()
            # Any error: a library interrupted at a bad moment may raise one of its own.
            gone = isinstance(error, GoneError)  # there is nothing to continue
            if isinstance(error, StoreError) and view.path is not None and not gone:
                raise StoreError(
                    *error.lines,
                    "the rounds saved so far are intact; once the cause is fixed, continue with: "
                    f"{own_command()} resume {quoted(view.path)}",
                ) from error
            if not received or isinstance(error, RemudaError):
                raise
            _print_how_to_continue(view)
            raise typer.Exit(_exit_code(received[0])) from None


@contextmanager
def interruptible_start() -> Iterator[None]:
    """Load what training needs inside this: an interruption there is not lost, and said."""
    with signals_raise() as received:
        try:
            yield
            stop_if_asked()
        except BaseException:
            stop_is_under_way()
            if not received:
                raise
            complain(_BEFORE_TRAINING)
            raise typer.Exit(_exit_code(received[0])) from None


@contextmanager
def signals_raise() -> Iterator[list[int]]:
    """While inside, signals that ask us to stop raise an exception; yields those received."""
    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1]
    # A closed terminal is a reason to stop, unless nohup says otherwise.
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    with stop_on(numbers, _exception) as received:
        yield received


def _exit_code(number: int) -> int:
    return STOPPED if number == signal.SIGUSR1 else 128 + number


def _exception(number: int) -> type[BaseException]:
    return KeyboardInterrupt if number == signal.SIGINT else _Terminated


def _print_how_to_continue(view: View) -> None:
    if view.path is None:
        complain(_BEFORE_TRAINING)
        return
    complain(
        f"interrupted; {view.round} of {view.rounds} rounds are complete and saved. Continue with:",
        then=f"{own_command()} resume {quoted(view.path)}",
    )
