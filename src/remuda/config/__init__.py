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
from remuda.config.methods import (
    CellularSettings,
    ClassParallelSettings,
    GapSettings,
    IndependentSettings,
)
from remuda.config.networks import (
    AnyNetwork,
    ClassDcganSettings,
    DcganSettings,
    GranSettings,
    MlpSettings,
)
from remuda.config.root import Config, DataSettings, DeviceSettings, ScoreSettings
from remuda.config.training import TrainingSettings

__all__ = [
    "DEFAULT_PRESET",
    "AnyNetwork",
    "CellularSettings",
    "ClassDcganSettings",
    "ClassParallelSettings",
    "Config",
    "DataSettings",
    "DcganSettings",
    "DeviceSettings",
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
