"""Sparse tables: map u64 feasigns to rows of weights, optimizer state and counters."""

from elasticctr._native import Layout, Lookup, TableStats
from elasticctr.table.settings import (
    AdagradSettings,
    AdamSettings,
    AdmissionSettings,
    ConstantSettings,
    FtrlSettings,
    InitializerSettings,
    NormalSettings,
    OptimizerSettings,
    RowwiseAdagradSettings,
    SegmentSettings,
    SgdSettings,
    TableSettings,
    UniformSettings,
    ZerosSettings,
)
from elasticctr.table.table import Mark, Rows, SlotTarget, Table, make_layout

__all__ = [
    "AdagradSettings",
    "AdamSettings",
    "AdmissionSettings",
    "ConstantSettings",
    "FtrlSettings",
    "InitializerSettings",
    "Layout",
    "Lookup",
    "Mark",
    "NormalSettings",
    "OptimizerSettings",
    "Rows",
    "RowwiseAdagradSettings",
    "SegmentSettings",
    "SgdSettings",
    "SlotTarget",
    "Table",
    "TableSettings",
    "TableStats",
    "UniformSettings",
    "ZerosSettings",
    "make_layout",
]
