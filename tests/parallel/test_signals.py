"""A request to stop cannot get lost, and an impatient one does not disturb what it asked for."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda.methods import RoundReport
from remuda.parallel import signals, training
from remuda.parallel.observer import Observer
from remuda.parallel.signals import (
    interrupts_stop,
    stop_if_asked,
    stop_is_under_way,
    stop_on,
)
from remuda.runs.store import RunFolder
from tests.faults import CALLBACKS
from tests.parallel.runs import settings

NUMBER = signal.SIGUSR2

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


class Stopped(BaseException):
    pass


def send() -> None:
    signal.raise_signal(NUMBER)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However soon a second signal comes, it is another request."""
    monkeypatch.setattr(signals, "_IMPATIENT_SECONDS", 0.0)


@pytest.fixture
def received() -> Iterator[list[int]]:
    with stop_on([NUMBER], lambda _: Stopped) as numbers:
        yield numbers


@pytest.mark.parametrize("callback", CALLBACKS)
def test_what_a_callback_swallowed_is_raised_again(callback: str, received: list[int]) -> None:
    stop_if_asked()
    CALLBACKS[callback](send)
    assert received == [NUMBER]
    with pytest.raises(Stopped):
        stop_if_asked()


def test_a_signal_right_after_another_is_the_same_request(received: list[int]) -> None:
    with pytest.raises(Stopped):
        send()
    send()
    assert received == [NUMBER, NUMBER]


@pytest.mark.usefixtures("patient", "received")
def test_a_second_signal_ends_what_does_not_look() -> None:
    CALLBACKS["destructor"](send)
    with pytest.raises(Stopped):
        send()


@pytest.mark.usefixtures("patient", "received")
def test_only_the_third_signal_disturbs_what_the_first_asked_for() -> None:
    with pytest.raises(Stopped):
        send()
    stop_is_under_way()
    stop_if_asked()
    send()
    with pytest.raises(Stopped):
        send()


@pytest.mark.usefixtures("received")
def test_an_error_is_no_request_to_stop() -> None:
    """What ends for another reason can still be interrupted."""
    stop_is_under_way()
    with pytest.raises(Stopped):
        send()


def test_handlers_are_as_before_afterwards() -> None:
    before = signal.getsignal(NUMBER)
    with stop_on([NUMBER], lambda _: Stopped):
        assert signal.getsignal(NUMBER) is not before
        CALLBACKS["destructor"](send)
    assert signal.getsignal(NUMBER) is before
    stop_if_asked()


@pytest.mark.usefixtures("received")
def test_a_request_is_answered_by_the_main_thread_alone() -> None:
    CALLBACKS["destructor"](send)
    raised: list[BaseException] = []

    def look() -> None:
        try:
            stop_if_asked()
            stop_is_under_way()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert raised == []
    with pytest.raises(Stopped):
        stop_if_asked()


def test_a_program_that_handles_ctrl_c_itself_goes_on_doing_so() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupts_stop():
            os.kill(os.getpid(), signal.SIGINT)
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_training_from_another_thread_touches_no_handler() -> None:
    seen: list[object] = []

    def look() -> None:
        with interrupts_stop():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGINT)]


@pytest.mark.slow
def test_ctrl_c_in_a_callback_stops_a_program_that_trains(tmp_path: Path, data: Path) -> None:
    class Interrupting(Observer):
        sent = False

        def reported(self, report: RoundReport, alarms: object) -> None:
            if report.round == 2 and not self.sent:
                self.sent = True
                CALLBACKS["finaliser"](lambda: signal.raise_signal(signal.SIGINT))

    before, run = signal.getsignal(signal.SIGINT), tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        training.train(settings(data, run, "rounds=30", "run.checkpoint_every=30"), Interrupting())
    assert signal.getsignal(signal.SIGINT) is before
    (checkpoint,) = RunFolder(run).checkpoints()
    assert checkpoint.round < 10
