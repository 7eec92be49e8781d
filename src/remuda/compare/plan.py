"""The plan of a comparison, written before its runs and kept with its result: `plan.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from remuda.compare.arms import MOST_ARMS, MOST_SEEDS, Arm, Budget
from remuda.config import Config, validate
from remuda.config.grid import MOST_CELLS
from remuda.config.records import Count, Record, read_record
from remuda.config.root import MOST_ROUNDS
from remuda.errors import ConfigError, StoreError
from remuda.files import write_json

PLAN = "plan.json"
FORMAT = 1
# What two arms may differ in without a word: where a run is kept and what it is called.
UNSAID = ("name", "seed", "run.")
_SeedText = Annotated[str, Field(pattern=r"^\d{1,19}$")]


class PlannedArm(Record):
    """One arm, with the whole configuration of its runs, but for seed and folder."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$")  # also of folders
    words: list[str]  # as given: the preset or file, then settings; or where the runs were found
    config: dict[str, Any]
    images: Count | None = None  # that a run will train on, and updates it will make
    updates: Count | None = None
    seconds_per_round: float | None = None  # of the pilot run that turned seconds into rounds
    runs: dict[_SeedText, str] = Field(
        default_factory=dict
    )  # by seed, where they were there before

    def settings(self, seed: int, path: Path) -> Config:
        """The configuration of one run of this arm."""
        values = {**self.config, "seed": seed}
        values["run"] = {**values.get("run", {}), "dir": str(path)}
        return validate(values)


class Addition(Record):
    """Seeds that were added to a plan after its first runs."""

    time: str
    seeds: list[Count] = Field(max_length=MOST_SEEDS)


class Plan(Record):
    """Everything that decides a comparison."""

    format: int = FORMAT
    written: str
    arms: list[PlannedArm] = Field(min_length=2, max_length=MOST_ARMS)
    seeds: list[Count] = Field(min_length=1, max_length=MOST_SEEDS)
    score: str  # that decides
    live: str  # what runs are scored by after every round
    metrics: list[str] = Field(default_factory=list)  # measured beyond what a run ends with
    data: str | None = None  # the fingerprint of the data that are trained on
    budget: str | None = None
    target: float | None = None
    collapsed: str | None = Field(
        None, pattern=r"^[a-z_]+[<>]\S+$"
    )  # when a run counts as collapsed, e.g. tvd>0.5
    engine: str = Field("local", pattern="^(auto|local|process|mpi)$")
    workers: int | None = Field(None, ge=1, le=MOST_CELLS)
    found: bool = False  # whether the runs were there before the plan
    data_dir: str | None = None  # where their data are, if they are measured again
    additions: list[Addition] = Field(default_factory=list)
    environment: dict[str, Any] = Field(default_factory=dict)  # versions and machine

    @property
    def all_seeds(self) -> list[int]:
        return [*self.seeds, *(seed for more in self.additions for seed in more.seeds)]

    def arm(self, name: str) -> PlannedArm:
        return next(arm for arm in self.arms if arm.name == name)

    def with_seeds(self, seeds: Sequence[int]) -> Plan:
        """The same plan with seeds added to it, and a note of when."""
        more = [seed for seed in seeds if seed not in self.all_seeds]
        if not more:
            return self
        added = Addition(time=now(), seeds=more)
        return self.model_copy(update={"additions": [*self.additions, added]})

    def check_same(self, other: Plan, folder: Path) -> None:
        """Refuse to continue a comparison as if it had been planned otherwise."""
        mine, theirs = ({arm.name: arm for arm in plan.arms} for plan in (self, other))
        if list(mine) != list(theirs):
            raise ConfigError(
                f"{folder}: holds a comparison of {' and '.join(mine)}, not of "
                f"{' and '.join(theirs)}; allowed: the same arms, or another --out"
            )
        if self.data != other.data:
            raise ConfigError(
                f"{folder}: was planned with other data ({self.data}, now {other.data}); allowed: "
                "the same data (--data-dir, REMUDA_DATA), or another --out"
            )
        for key in ("budget", "score", "metrics", "target", "collapsed"):
            before, after = getattr(self, key), getattr(other, key)
            if before != after:
                raise ConfigError(
                    f"{folder}: was planned with {key} {before}, not {after}; allowed: {before}, "
                    "or another --out"
                )
        for name, arm in mine.items():
            if arm.runs != theirs[name].runs:
                raise ConfigError(
                    f"{folder}: arm {name} was planned with other runs than there are now; "
                    "allowed: the same, or another --out"
                )
            for key, before, after in differences(arm.config, theirs[name].config):
                if not key.startswith("run."):
                    raise ConfigError(
                        f"{folder}: arm {name} was planned with {key}={before}, not {after}; "
                        f"allowed: {before}, or another --out"
                    )


def now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")


def read_plan(folder: Path) -> Plan:
    """The plan in a comparison's folder."""
    if not (folder / PLAN).is_file():
        raise StoreError(f"{folder}: not a comparison: it has no {PLAN}")
    return read_record(folder / PLAN, Plan, "plan of a comparison", format=FORMAT)


def write_plan(folder: Path, plan: Plan) -> None:
    write_json(folder / PLAN, plan.model_dump(mode="json"))


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """The settings, by dotted key, in which two configurations differ."""
    flat_one, flat_other = flat(one), flat(other)
    return [
        (key, flat_one.get(key), flat_other.get(key))
        for key in dict.fromkeys((*flat_one, *flat_other))
        if flat_one.get(key) != flat_other.get(key)
    ]


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by dotted key."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found


def settings_that_differ(arms: Sequence[PlannedArm]) -> dict[str, dict[str, Any]]:
    """Every setting in which the arms are not all alike, with its value in each."""
    flats = {arm.name: flat(arm.config) for arm in arms}
    keys = dict.fromkeys(key for one in flats.values() for key in one)
    return {
        key: {name: one.get(key) for name, one in flats.items()}
        for key in keys
        if not key.startswith(UNSAID)
        and any(one.get(key) != next(iter(flats.values())).get(key) for one in flats.values())
    }


def share_their_start(one: Config, other: Config) -> bool:
    """Whether two runs with the same seed start from the same weights and see the same batches.

    Every draw is keyed by seed, cell, round and purpose, so this follows from the settings.
    """
    return (
        one.cells == other.cells
        and one.network == other.network
        and one.members == other.members
        and one.init_from == other.init_from
        and one.data == other.data
        and one.training.batch_size == other.training.batch_size
        and one.method.cells_follow_from_data == other.method.cells_follow_from_data
    )


def rounds_within(budget: Budget, first: float, per_round: float, name: str) -> int:
    """How many whole rounds an arm can train without spending more than the budget.

    The first round may take longer than the others.
    """
    if budget.amount < first:
        raise ConfigError(
            f"--budget={budget}: one round of arm {name} takes {first:,.6g} {budget.unit}; "
            f"allowed: at least {budget.unit}={first:.6g}, or smaller rounds "
            "(training.batches_per_round)"
        )
    rounds = 1 + int((budget.amount - first) / per_round + 1e-9)
    if rounds > MOST_ROUNDS:
        raise ConfigError(
            f"--budget={budget}: {rounds:.3g} rounds of arm {name}; allowed: at most "
            f"{budget.unit}={MOST_ROUNDS * per_round:.6g}"
        )
    return rounds


def planned_arm(arm: Arm, config: Config, **more: Any) -> PlannedArm:
    values = config.model_dump(mode="json")
    values["run"]["dir"] = None
    values["name"] = arm.name
    return PlannedArm(name=arm.name, words=[arm.source, *arm.overrides], config=values, **more)
