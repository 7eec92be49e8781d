"""The id of a run: a digest of what decides its networks, and so the same for a repetition."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, TypeGuard

from remuda.config import Config
from remuda.config.base import Settings, Variant
from remuda.files import digest, to_json
from remuda.methods import build_method
from remuda.runs.records import ID_PATTERN, Environment

EXTRACTOR = "extractor.safetensors"  # what scores a run, where that came with it
INITIAL = "initial-"  # how the names begin of the files with what cells started from
_DIGITS = 16
# Where a run is kept and computed, and what its result is compared with. Not the rounds, which may
# change when it resumes: a longer run with the same seed trains the same networks further.
_ELSEWHERE = (
    "name",
    "rounds",
    "exact",
    "run.",
    "devices.",
    "data.reference",
    "score.final_samples",
)
# What decides the data and the first GANs: it is their content that counts.
_CONTENT = (
    *("init_from", "data.source", "data.dir", "data.split", "data.limit", "data.validation"),
    *("data.seed", "data.size", "data.colour"),
)


def run_id(config: Config, env: Environment) -> str:
    """The id of a run with this resolved configuration, these data and these first GANs."""
    watched = build_method(config).needs_scores is not None
    ignored = (*_ELSEWHERE, *_CONTENT, *(() if watched else ("score.",)))
    settings = {key: value for key, value in _chosen(config) if not key.startswith(ignored)}
    counted: tuple[str, ...] = (INITIAL,)
    if watched and settings.pop("score.extractor", None) is not None:
        # A file counts by its content, wherever it lies; of the others the name is enough.
        if config.score.extractor_file is None:
            settings["score.extractor"] = config.score.extractor
        else:
            counted = (INITIAL, EXTRACTOR)
    first = {name: sum for name, sum in env.attachments.items() if name.startswith(counted)}
    whole = [sorted(settings.items()), env.data.fingerprint, sorted(first.items())]
    return digest(to_json(whole).encode())[:_DIGITS]


def is_id(value: Any) -> TypeGuard[str]:
    """Whether this may be the id of a run."""
    return isinstance(value, str) and re.fullmatch(ID_PATTERN, value) is not None


def _chosen(settings: Settings, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The settings that are not at their defaults, by dotted key, and the kinds of sections.

    A setting that is newer than a run has the default that means what was done then, so a later
    version with more settings computes the same id.
    """
    values = settings.model_dump(mode="json")
    for name, field in type(settings).model_fields.items():
        key, value = prefix + name, getattr(settings, name)
        if isinstance(value, Settings):
            yield from _chosen(value, f"{key}.")
        elif isinstance(value, tuple) and value and isinstance(value[0], Settings):
            yield key, len(value)
            for number, entry in enumerate(value):
                yield from _chosen(entry, f"{key}[{number}].")
        elif _is_kind(settings, name) or value != field.get_default(call_default_factory=True):
            yield key, values[name]


def _is_kind(settings: Settings, name: str) -> bool:
    return isinstance(settings, Variant) and name == settings.tag
