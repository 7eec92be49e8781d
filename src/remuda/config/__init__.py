"""Typed settings: the schema, the presets, and loading with helpful errors."""

from remuda.config.load import (
    DEFAULT_PRESET,
    load_config,
    preset_names,
    preset_summary,
    render,
    suggest,
    validate,
)
from remuda.config.schema import (
    CellularSettings,
    Config,
    DataSettings,
    DcganSettings,
    IndependentSettings,
    MlpSettings,
    ScoreSettings,
    TrainingSettings,
)

__all__ = [
    "DEFAULT_PRESET",
    "CellularSettings",
    "Config",
    "DataSettings",
    "DcganSettings",
    "IndependentSettings",
    "MlpSettings",
    "ScoreSettings",
    "TrainingSettings",
    "load_config",
    "preset_names",
    "preset_summary",
    "render",
    "suggest",
    "validate",
]
