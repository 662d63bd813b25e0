"""Rows and donefiles in other systems' formats: SequenceFiles, text, Parquet, `base.txt` and `patch.txt`."""

from elasticctr.publish.interchange.donefile import Donefile, DoneLine, append_donefile, parse_donefile, read_donefile
from elasticctr.publish.interchange.opening import FORMATS, open_rows, open_writer
from elasticctr.publish.interchange.rows import RowInfo, RowSource, RowWriter

__all__ = [
    "FORMATS",
    "DoneLine",
    "Donefile",
    "RowInfo",
    "RowSource",
    "RowWriter",
    "append_donefile",
    "open_rows",
    "open_writer",
    "parse_donefile",
    "read_donefile",
]
