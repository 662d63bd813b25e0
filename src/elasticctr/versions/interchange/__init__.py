"""Rows and donefiles in other systems' formats: SequenceFiles, text, Parquet, `base.txt` and `patch.txt`."""

from elasticctr.versions.interchange.donefile import Donefile, DoneLine, append_donefile, parse_donefile, read_donefile
from elasticctr.versions.interchange.export import Exported, export_version
from elasticctr.versions.interchange.opening import FORMATS, open_rows, open_writer
from elasticctr.versions.interchange.rows import RowInfo, RowSource, RowWriter

__all__ = [
    "FORMATS",
    "DoneLine",
    "Donefile",
    "Exported",
    "RowInfo",
    "RowSource",
    "RowWriter",
    "append_donefile",
    "export_version",
    "open_rows",
    "open_writer",
    "parse_donefile",
    "read_donefile",
]
