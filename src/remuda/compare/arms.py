"""What is compared: arms, as words of the command line name them, over seeds, at a budget."""

from __future__ import annotations

import glob
import json
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from remuda.config import Config, load_config, suggest
from remuda.errors import ConfigError

UNITS = ("images", "updates", "cpu-seconds", "wall-seconds")
MOST_ARMS = 20
MOST_SEEDS = 10_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
_NAMED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)=(.+)", re.DOTALL)


@dataclass(frozen=True)
class Arm:
    """One side of a comparison: settings to train with, or runs that exist."""

    name: str
    source: str
    overrides: tuple[str, ...] = ()
    found: tuple[Path, ...] = ()  # run folders that exist; () means that they are to be trained

    def config(self, data_dir: Path | None = None) -> Config:
        """Its configuration, without a seed or a folder of its own."""
        overrides = list(self.overrides)
        if data_dir is not None:
            overrides.append(f"data.dir={json.dumps(str(data_dir), ensure_ascii=False)}")
        return load_config(self.source, overrides)


@dataclass(frozen=True)
class Budget:
    """What every arm may spend per seed, summed over its cells (wall-seconds: from start to end).

    An update is a batch of training, images are the real ones in those batches.
    """

    unit: str  # one of UNITS
    amount: float

    def __str__(self) -> str:
        return f"{self.unit}={self.amount:.15g}"

    @property
    def is_time(self) -> bool:
        return self.unit in ("cpu-seconds", "wall-seconds")


@dataclass(frozen=True)
class Collapse:
    """When a run counts as collapsed: a score beyond a limit, or not finite."""

    score: str
    is_above: bool  # the limit, rather than below
    limit: float

    def __str__(self) -> str:
        limit = repr(self.limit).removesuffix(".0")  # all its digits, so that it is read as it was
        return f"{self.score}{'>' if self.is_above else '<'}{limit}"

    def __call__(self, value: float) -> bool:
        if not math.isfinite(value):
            return True
        return value > self.limit if self.is_above else value < self.limit


def parse_arms(words: Sequence[str]) -> list[Arm]:
    """The arms of a command line; all are to be trained, or all exist."""
    arms = [_parse_arm(word) for word in words]
    if len(arms) < 2:
        raise ConfigError(
            f"{words[0] if words else 'compare'}: a comparison needs at least two arms, e.g. "
            "'alone=quickstart method=independent' 'grid=quickstart'"
        )
    if len(arms) > MOST_ARMS:
        raise ConfigError(f"{len(arms)} arms; allowed: 2 to {MOST_ARMS}")
    for place, arm in enumerate(arms):
        if arm.name in (other.name for other in arms[:place]):
            raise ConfigError(
                f"arm {arm.name}: the name is taken; give each its own, e.g. "
                f"'{arm.name}2={words[place].partition('=')[2] or words[place]}'"
            )
    exist = [arm for arm in arms if arm.found]
    if exist and len(exist) < len(arms):
        other = next(arm for arm in arms if not arm.found)
        raise ConfigError(
            f"arm {exist[0].name} names runs that exist and {other.name} does not; allowed: only "
            "runs that exist, or only arms to be trained"
        )
    return arms


def _parse_arm(word: str) -> Arm:
    try:
        parts = shlex.split(word)
    except ValueError as error:
        raise ConfigError(f"{word}: {error}; write an arm as 'NAME=PRESET key=value …'") from None
    if not parts:
        raise ConfigError("an arm is empty; write it as 'NAME=PRESET key=value …'")
    first, *overrides = parts
    named = _NAMED.fullmatch(first)
    name, source = (named[1], named[2]) if named else ("", first)
    found = _runs_at(source)
    if found:
        if overrides:
            raise ConfigError(
                f"{word}: settings cannot be given for runs that exist ({source}); allowed: none"
            )
        return Arm(_checked(name or _plain_name(source), word), source, (), found)
    return Arm(_checked(name or Path(source).stem, word), source, tuple(overrides))


def _runs_at(pattern: str) -> tuple[Path, ...]:
    """The run folders that a path or a pattern of paths names."""
    try:
        place = Path(pattern).expanduser()
    except RuntimeError:  # ~ of a user that there is not
        return ()
    # Path.glob does not take patterns that begin with a slash.
    paths = sorted(map(Path, glob.glob(str(place))))  # noqa: PTH207
    found = tuple(path for path in paths if (path / "config.yaml").is_file())
    if not found and ("*" in pattern or any(path.is_dir() for path in paths)):
        raise ConfigError(f"{pattern}: no run folders there; `remuda runs` lists runs")
    return found


def _plain_name(pattern: str) -> str:
    """runs/gap-* is called gap."""
    return re.sub(r"[^A-Za-z0-9._-]+", "", Path(pattern).name).strip("-_.") or "runs"


def _checked(name: str, word: str) -> str:
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{word}: {name!r} cannot be the name of an arm; allowed: up to 40 letters, digits, "
            "dots, dashes and underscores, e.g. 'gap=gap-toy-r15 rounds=30'"
        )
    return name


def parse_seeds(text: str) -> tuple[int, ...]:
    """`10` means 0 to 9; `10-19` and `3,5,8` say which."""
    found: list[int] = []
    try:
        if text.strip().isdecimal():
            found = [*range(int(text))[: MOST_SEEDS + 1]]
        else:
            for part in text.split(","):
                first, dash, last = part.strip().partition("-")
                found += range(int(first), int(last if dash else first) + 1)[: MOST_SEEDS + 1]
    except ValueError:
        found = []
    if not found or len(set(found)) != len(found) or len(found) > MOST_SEEDS or min(found) < 0:
        raise ConfigError(
            f"--seeds={text}: allowed: how many, e.g. 10 (seeds 0 to 9), or which, e.g. 10-19 or "
            "3,5,8"
        )
    return tuple(sorted(found))


def parse_budget(text: str) -> Budget:
    """`images=600000`, `cpu-seconds=120` and so on."""
    unit, _, amount = text.partition("=")
    known = [one for one in UNITS if one == unit.strip().replace("_", "-")]
    if not known:
        hint = suggest(unit, UNITS) or ";"
        raise ConfigError(
            f"--budget={text}: unknown unit{hint} allowed: {', '.join(f'{one}=N' for one in UNITS)}"
        )
    try:
        number = float(amount.replace("_", "").replace(",", ""))
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise ConfigError(f"--budget={text}: allowed: a number above 0, e.g. {known[0]}=100000")
    return Budget(known[0], number)


def parse_collapse(text: str, higher_is_better: Mapping[str, bool]) -> Collapse:
    """`tvd>0.5` or `modes_covered<8`: a known score, and the side on which it is bad."""
    parts = re.fullmatch(r"\s*([A-Za-z_]+)\s*([<>])\s*(\S+)\s*", text)
    name, sign, limit = parts.groups() if parts else ("", "", "")
    try:
        number = float(limit)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ConfigError(f"--collapsed={text}: allowed: SCORE>X or SCORE<X, e.g. 'tvd>0.5'")
    if name not in higher_is_better:
        hint = suggest(name, higher_is_better) or ";"
        raise ConfigError(
            f"--collapsed={text}: unknown score {name}{hint} allowed: {', '.join(higher_is_better)}"
        )
    if (sign == ">") == higher_is_better[name]:
        bad, better = ("<", "higher") if higher_is_better[name] else (">", "lower")
        raise ConfigError(
            f"--collapsed={text}: {better} is better for {name}, so no run collapses there; "
            f"allowed: {name}{bad}X"
        )
    return Collapse(name, sign == ">", number)
