"""What crosses a process boundary: typed, bounded, and the same on the other side."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from remuda.gan.game import Losses
from remuda.methods import RoundReport
from remuda.parallel import messages
from remuda.parallel.messages import Done, Hello, MessageError, decode


def encoded(**changes: Any) -> bytes:
    """A report as a worker sends it, with some of its fields changed."""
    report = {
        "cell": 1,
        "round": 2,
        "losses": {"generator": 0.5, "discriminator": 0.25, "batches": 3, "images": 30},
        "seconds": {"train": 1.5},
        "genes": {"lr_generator": 0.1, "lr_discriminator": 0.2, "loss": "heuristic"},
        "score": None,
        "classes": 3,
        "duplicates": 0.0,
        "details": {"cost": {"train": [1, 2.5, None]}},
        **changes,
    }
    return json.dumps({"kind": "done", "term": 1, "report": report}).encode()


def received(content: bytes) -> RoundReport:
    message = decode(content)
    assert isinstance(message, Done)
    return message.report


def test_a_report_arrives_as_what_it_was() -> None:
    first = received(encoded())
    assert isinstance(first, RoundReport)
    assert isinstance(first.losses, Losses)
    assert received(Done(term=1, report=first).encode()) == first


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_survives(value: float) -> None:
    losses = {"generator": value, "discriminator": 0.5, "batches": 3, "images": 30}
    found = received(encoded(losses=losses, score=value, details={"cost": [value]}))
    again = received(Done(term=1, report=found).encode())
    for loss in (again.losses.generator, again.score, again.details["cost"][0]):
        assert str(loss) == str(value)


@pytest.mark.parametrize(
    "changes",
    [
        {"unknown": 1},
        {"cell": "one"},
        {"round": None},
        {"losses": None},
        {"losses": {"generator": 1.0}},
        {"losses": {"generator": 0, "discriminator": 0, "batches": 1, "images": 1, "more": 1}},
        {"seconds": {"train": "long"}},
        {"bytes": [1, 2]},
        {"staleness": {"0": 0.5}},
    ],
    ids=str,
)
def test_a_report_of_another_shape_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(MessageError):
        decode(encoded(**changes))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x80\x04K\x01.",
        b"[]",
        b"null",
        b"{}",
        b'{"kind": "no such kind"}',
        b'{"kind": "finished"}',
        b'{"kind": "finished", "term": 1, "more": 2}',
        b'{"kind": "hello", "host": "a", "pid": 1, "cores": 0, "memory": 1}',
        b"[" * 100_000,
    ],
    ids=lambda content: content[:20],
)
def test_what_is_not_a_message_is_refused(content: bytes) -> None:
    with pytest.raises(MessageError):
        decode(content)


def test_a_message_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    content = Hello(host="a" * 100, pid=1, cores=1, memory=1).encode()
    decode(content)
    monkeypatch.setattr(messages, "LARGEST", 99)
    with pytest.raises(MessageError, match="at most 99"):
        decode(content)
