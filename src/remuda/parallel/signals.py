"""The signals that ask a job to stop, and requests to stop that cannot get lost. Free of torch."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

# To a terminal or a job they reach workers too, but only the master acts on them.
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)

_IMPATIENT_SECONDS = 1.0  # a second signal so soon after the first is the same request


def ignore_signals() -> None:
    """Leave it to the master what they mean."""
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)


class _Request:
    """What signals have asked of the main thread."""

    def __init__(self, exception: Callable[[int], type[BaseException]]) -> None:
        self.received: list[int] = []
        self.under_way = False  # what it asked for
        self._exception = exception
        self._spared = False
        self._since = 0.0

    def receive(self, number: int, _frame: object) -> None:
        self.received.append(number)
        if len(self.received) == 1:
            self._since = time.monotonic()
        elif time.monotonic() - self._since < _IMPATIENT_SECONDS:
            return  # the first may be on its way to where it is answered
        elif self.under_way and not self._spared:
            self._spared = True  # it must not interrupt the saving
            return
        raise self._exception(number)

    def raise_if_lost(self) -> None:
        if self.received and not self.under_way:
            raise self._exception(self.received[0])


_request: _Request | None = None  # the innermost one; handlers are the main thread's alone


@contextmanager
def stop_on(
    numbers: Iterable[int], exception: Callable[[int], type[BaseException]]
) -> Iterator[list[int]]:
    """While inside, these signals raise an exception; yields those received.

    Python drops what is raised inside a callback: of the garbage collector, of an import, of C. So
    whoever works or waits for long calls `stop_if_asked`, which raises it again.
    """
    global _request
    request = _Request(exception)
    outer, _request = _request, request
    previous = [(number, signal.signal(number, request.receive)) for number in numbers]
    try:
        yield request.received
    finally:
        for number, handler in previous:
            signal.signal(number, handler)
        _request = outer


@contextmanager
def interrupts_stop() -> Iterator[None]:
    """In a program of one's own Ctrl-C is not lost either, unless that has a handler for it."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    with stop_on([signal.SIGINT], lambda _: KeyboardInterrupt):
        yield
        stop_if_asked()


def stop_if_asked() -> None:
    """Stop now, if a signal asked for it in vain."""
    if _request is not None and threading.current_thread() is threading.main_thread():
        _request.raise_if_lost()


def stop_is_under_way() -> None:
    """What a signal asked for is happening: saving, say. One more signal does not disturb it."""
    if _request is not None and threading.current_thread() is threading.main_thread():
        _request.under_way = bool(_request.received)
