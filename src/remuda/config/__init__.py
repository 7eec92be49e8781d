"""Typed settings: the schema, the presets, and loading with helpful errors."""

from remuda.config.data import DataSettings
from remuda.config.explain import suggest
from remuda.config.load import (
    DEFAULT_PRESET,
    load_config,
    preset_expectation,
    preset_names,
    preset_summary,
    read_config,
    validate,
)
from remuda.config.methods import (
    AveragingSettings,
    CellularSettings,
    ClassParallelSettings,
    GapSettings,
    IndependentSettings,
    MethodSettings,
)
from remuda.config.networks import (
    ClassDcganSettings,
    DcganSettings,
    GranSettings,
    MlpSettings,
    NetworkSettings,
    ResnetSettings,
)
from remuda.config.objectives import OBJECTIVES, PENALTIES, ObjectiveFacts, PenaltyFacts
from remuda.config.render import render
from remuda.config.root import Config
from remuda.config.run import DeviceSettings
from remuda.config.score import CLASSIFIER_FILE, EXTRACTORS, METRICS, MetricFacts, ScoreSettings
from remuda.config.training import TrainingSettings

__all__ = [
    "CLASSIFIER_FILE",
    "DEFAULT_PRESET",
    "EXTRACTORS",
    "METRICS",
    "OBJECTIVES",
    "PENALTIES",
    "AveragingSettings",
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
    "MethodSettings",
    "MetricFacts",
    "MlpSettings",
    "NetworkSettings",
    "ObjectiveFacts",
    "PenaltyFacts",
    "ResnetSettings",
    "ScoreSettings",
    "TrainingSettings",
    "load_config",
    "preset_expectation",
    "preset_names",
    "preset_summary",
    "read_config",
    "render",
    "suggest",
    "validate",
]
