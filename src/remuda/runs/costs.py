"""What the rounds of a run cost, how often they paid, and with which genes: from its events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


def acceptance_rate(events: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """The fraction of trained offspring that became their cell's centre, by role.

    Replacement may discard a round of training; this is how often it did not.
    """
    outcomes: dict[str, list[bool]] = {}
    for event in events:
        for role, centre in event.get("centre", {}).items():
            outcomes.setdefault(role, []).append(centre["from"] == "offspring")
    return {role: sum(kept) / len(kept) for role, kept in outcomes.items()}


# The settings that a cell's genes are, as events name them.
GENE_SETTINGS = {
    "lr_generator": "training.learning_rate",
    "lr_discriminator": "training.discriminator_learning_rate",
    "loss": "training.objective",
    "r1": "training.r1",
    "average": "training.average",
}


def genes_of(cell: int, events: Iterable[Mapping[str, Any]], objective: str) -> dict[str, Any]:
    """The genes that a cell ended with, as settings to use again.

    A loss is the generator's alone: where it differs from the objective of the run, which its
    discriminator was trained with, it is one of `method.losses`.
    """
    last: Mapping[str, Any] = {}
    for event in events:
        if event.get("event") == "round" and event.get("cell") == cell:
            last = event
    found = {
        setting: last[name] for name, setting in GENE_SETTINGS.items() if last.get(name) is not None
    }
    if found.get("training.objective", objective) != objective:
        found["method.losses"] = [found.pop("training.objective")]
    return found


@dataclass(frozen=True)
class Costs:
    """The cost of the rounds of a run, summed over cells."""

    cell_rounds: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)  # by routine, longest first
    bytes: Mapping[str, int] = field(default_factory=dict)  # gathered, published, saved
    images: int = 0  # real ones that discriminators trained on, counted each time
    batches: int = 0
    cpu_seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return {
            "cell_rounds": self.cell_rounds,
            "images": self.images,
            "batches": self.batches,
            "cpu_seconds": round(self.cpu_seconds, 3),
            "routines": {name: round(seconds, 6) for name, seconds in self.seconds.items()},
            "bytes": {
                name: {"total": total, "per_cell_round": round(total / self.cell_rounds)}
                for name, total in self.bytes.items()
            },
        }


def sum_costs(events: Iterable[Mapping[str, Any]]) -> Costs:
    """The costs of all rounds in the events; rounds that were trained again count once."""
    count = 0
    seconds: dict[str, float] = {}
    traffic: dict[str, int] = {}
    images = batches = 0
    cpu_seconds = 0.0
    for event in events:
        if event.get("event") != "round":
            continue
        count += 1
        images += event.get("images", 0)
        batches += event.get("batches", 0)
        cpu_seconds += event.get("cpu_seconds", 0.0)
        for routine, spent in event.get("seconds", {}).items():
            seconds[routine] = seconds.get(routine, 0.0) + spent
        for kind, size in event.get("bytes", {}).items():
            traffic[kind] = traffic.get(kind, 0) + size
    longest = sorted(seconds.items(), key=lambda item: (-item[1], item[0]))
    return Costs(count, dict(longest), dict(sorted(traffic.items())), images, batches, cpu_seconds)
