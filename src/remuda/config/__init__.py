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
    AnyNetwork,
    CellularSettings,
    ClassDcganSettings,
    ClassParallelSettings,
    Config,
    DataSettings,
    DcganSettings,
    GapSettings,
    GranSettings,
    IndependentSettings,
    MlpSettings,
    ScoreSettings,
    TrainingSettings,
)

__all__ = [
    "DEFAULT_PRESET",
    "AnyNetwork",
    "CellularSettings",
    "ClassDcganSettings",
    "ClassParallelSettings",
    "Config",
    "DataSettings",
    "DcganSettings",
    "GapSettings",
    "GranSettings",
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
