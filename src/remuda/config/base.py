"""What all settings have in common: frozen sections, sections of several kinds, open sets of names.

Nothing here, nor anywhere in `config`, imports torch: a configuration is checked in milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, get_args, get_origin

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, model_validator
from pydantic_core import CoreSchema, PydanticCustomError, core_schema


class Settings(BaseModel):
    """Base of all settings: unknown keys are errors, values do not change after loading."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False
    )

    @model_validator(mode="before")
    @classmethod
    def _bool_is_not_a_number(cls, values: Any) -> Any:
        for name, value in values.items() if isinstance(values, dict) else ():
            field = cls.model_fields.get(name)
            if isinstance(value, bool) and field and bool not in _parts(field.annotation):
                raise ValueError(
                    f"{name}={str(value).lower()}: true and false are not allowed here"
                )
        return values


def _parts(annotation: Any) -> tuple[Any, ...]:
    return annotation, *get_args(annotation)


class Variant(Settings):
    """Base of sections that come in several kinds, told apart by the value of one tag field.

    A direct subclass is the abstract base of one such section: it names the tag field, and a field
    of its type accepts every kind. A subclass that declares the tag as a Literal is a kind, and
    defining it registers it:

        class ToySettings(NetworkSettings):
            family: Literal["toy"] = Field("toy", description="...")

    A subclass without a tag value of its own is abstract too; a field of its type accepts the kinds
    derived from it.
    """

    tag: ClassVar[str]
    kinds: ClassVar[dict[str, type[Any]]]

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if Variant in cls.__bases__:
            cls.kinds = {}
        name = cls._tag_value()
        if name is None:
            return
        if name in cls.kinds:
            raise TypeError(
                f"{cls.__name__}: {cls.tag}={name} is already {cls.kinds[name].__name__}"
            )
        cls.kinds[name] = cls

    @classmethod
    def _tag_value(cls) -> str | None:
        """The tag value of this kind; None if the class is abstract."""
        field = cls.model_fields.get(cls.tag) if hasattr(cls, "tag") else None
        if field is None or get_origin(field.annotation) is not Literal:
            return None
        name: str = get_args(field.annotation)[0]
        return name

    @classmethod
    def names(cls) -> list[str]:
        """The tag values a field of this type accepts."""
        return [name for name, kind in cls.kinds.items() if issubclass(kind, cls)]

    @classmethod
    def kind_of(cls, values: Any) -> type[Self] | None:
        """The kind that plain values name by their tag, if they name one."""
        name = values.get(cls.tag) if isinstance(values, Mapping) else None
        return cls.kinds[name] if isinstance(name, str) and name in cls.names() else None

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: Any, handler: GetCoreSchemaHandler, /
    ) -> CoreSchema:
        if cls._tag_value() is not None:
            return handler(source)
        # Looked up while validating, so that kinds defined later are accepted as well. Without a
        # serialiser of its own, an instance is dumped as what it is.
        return core_schema.no_info_plain_validator_function(cls._of_a_kind)

    @classmethod
    def _of_a_kind(cls, values: Any) -> Self:
        if isinstance(values, cls):
            return values
        if not isinstance(values, Mapping):
            raise PydanticCustomError("not_a_section", "expected a section")
        kind = cls.kind_of(values)
        if kind is None:
            raise PydanticCustomError(
                "unknown_kind",
                "unknown {tag}; allowed: {allowed}",
                {"tag": cls.tag, "allowed": ", ".join(cls.names())},
            )
        return kind.model_validate(values)


@dataclass(frozen=True)
class OneOf:
    """Annotation of text that must be one of a set of names that may grow (a registry's keys).

    With `or_file`, the path of a file whose name ends with it will do as well.
    """

    names: Callable[[], Iterable[str]]
    or_file: str | None = None

    @property
    def allowed(self) -> str:
        file = [] if self.or_file is None else [f"or a {self.or_file} file"]
        return ", ".join([*self.names(), *file])

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler, /
    ) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._check)

    def _check(self, value: Any) -> str:
        if isinstance(value, str) and (value in self.names() or self._is_file(value)):
            return value
        raise PydanticCustomError("unknown_name", "allowed: {allowed}", {"allowed": self.allowed})

    def _is_file(self, value: str) -> bool:
        return self.or_file is not None and value.endswith(self.or_file)
