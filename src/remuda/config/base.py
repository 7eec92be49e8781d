"""What all settings have in common."""

from __future__ import annotations

from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, model_validator


class Settings(BaseModel):
    """Base of all settings: unknown keys are errors, values do not change after loading."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False
    )

    @model_validator(mode="before")
    @classmethod
    def _true_is_no_number(cls, values: Any) -> Any:
        for name, value in values.items() if isinstance(values, dict) else ():
            field = cls.model_fields.get(name)
            if isinstance(value, bool) and field and bool not in _parts(field.annotation):
                raise ValueError(
                    f"{name}={str(value).lower()}: true and false are not allowed here"
                )
        return values


def _parts(annotation: Any) -> tuple[Any, ...]:
    return annotation, *get_args(annotation)
