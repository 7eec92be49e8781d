"""What a method remembers of a cell from round to round, and how it is saved and read."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, Self, TypeVar, cast

from pydantic import ConfigDict, TypeAdapter

from remuda.gan.parcels import Parcel


@dataclass(frozen=True)
class Label:
    """The one label that a cell sees."""

    index: int
    items: int  # of this label in the data


@dataclass
class CellState:
    """What every method keeps; a method with more to remember adds fields in a subclass.

    In a parcel's meta it is plain JSON, in which a field that still has its default is left out.
    """

    # Lineages may be numbers: the first versions wrote those of the cells.
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(coerce_numbers_to_str=True)

    # The discriminator's lineage, where it is not simply the cell's own number: see lineage.py.
    lineage: str | None = None
    # The lineages of the discriminators that the generator trained against.
    met: list[str] | None = None
    label: Label | None = None
    # The cell that the generator's weights come from, where it is not the cell's own number.
    ancestor: str | None = field(default=None, kw_only=True)

    def to_json(self) -> dict[str, Any]:
        """Plain values, copied."""
        defaults = type(self)()
        return {
            field.name: _plain(getattr(self, field.name))
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != getattr(defaults, field.name)
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`; what another method left behind is ignored."""
        known = {field.name for field in dataclasses.fields(cls)}
        own = {name: value for name, value in values.items() if name in known}
        return cast("Self", _checker(cast("Any", cls)).validate_python(copy.deepcopy(own)))


@dataclass
class _Holder:
    """For `asdict`, which goes into whatever a field of a dataclass holds."""

    value: Any


def _plain(value: Any) -> Any:
    """A copy of a field's value as JSON has it."""
    # In time everybody has met everybody: a thousand names, not to be copied one by one.
    if isinstance(value, list) and set(map(type, value)) <= {str}:
        return list(value)
    return dataclasses.asdict(_Holder(value))["value"]


@cache
def _checker(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


S = TypeVar("S", bound=CellState)


def read_state(parcel: Parcel, kind: type[S]) -> S:
    """What a parcel says of its cell, as far as this kind of state knows it."""
    return kind.from_json(parcel.meta["memory"])
