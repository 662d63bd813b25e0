"""Synthetic click logs of any size from a hidden model, so that the best attainable AUC and logloss are known."""

from elasticctr.data.synth.files import SynthLabel, SynthReport, write_log
from elasticctr.data.synth.rows import Generator, SynthSamples
from elasticctr.data.synth.spec import (
    Shape,
    SynthSpec,
    avazu_spec,
    conversions_spec,
    criteo_spec,
    history_spec,
    schema_spec,
)

__all__ = [
    "Generator",
    "Shape",
    "SynthLabel",
    "SynthReport",
    "SynthSamples",
    "SynthSpec",
    "avazu_spec",
    "conversions_spec",
    "criteo_spec",
    "history_spec",
    "schema_spec",
    "write_log",
]
