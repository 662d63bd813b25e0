"""Files that cannot be read: whether the file or the machine is to blame."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elasticctr.data.formats.arrow_errors import explain_arrow
from elasticctr.errors import Corruption, InternalError

READ = """
import resource, sys
from elasticctr.data.formats.parquet_reader import ParquetReader
from elasticctr.data.schema import Schema
from elasticctr.data.settings import ReadOptions
from elasticctr.storage import resolve
from elasticctr.errors import ElasticCTRError
from elasticctr.versions.interchange.columnar import ColumnarRows

file = resolve(sys.argv[1])[0]
schema = Schema.model_validate({"slots": [{"kind": "sparse", "name": "feasign"}]})
used = int(next(line for line in open("/proc/self/status") if line.startswith("VmSize")).split()[1]) << 10
resource.setrlimit(resource.RLIMIT_AS, (used + (24 << 20),) * 2)
for read in (
    lambda: list(ParquetReader(schema, ReadOptions(), False).blocks(file, 0, 1)),
    lambda: list(ColumnarRows([file]).blocks()),
):
    try:
        read()
    except ElasticCTRError as e:
        print(e.code, e)
"""


@pytest.mark.promise(
    "memory runs out while a Parquet or Arrow file is read", "an InternalError that names memory; no file is blamed"
)
def test_too_little_memory_is_not_the_files_fault(tmp_path: Path) -> None:
    count = 6_000_000
    values = pa.array(np.arange(count, dtype=np.uint64))
    rows = pa.FixedSizeBinaryArray.from_buffers(pa.binary(8), count, [None, values.buffers()[1]])
    path = tmp_path / "large.parquet"
    table = pa.table({"click": np.ones(count, np.int8), "feasign": values, "row": rows})
    pq.write_table(table, path, row_group_size=count, compression="none", use_dictionary=False)
    done = subprocess.run([sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=False)
    told = done.stdout.splitlines()
    assert len(told) == 2, done.stdout + done.stderr
    for line in told:
        assert line.startswith("InternalError") and "too little memory" in line and "large.parquet" in line


def test_what_is_to_blame() -> None:
    damaged = "damaged: {}; fetch it again"
    for error in (pa.ArrowInvalid("bad\nmore"), OSError("Invalid: x"), ValueError("x"), KeyError("feasign")):
        explained = explain_arrow(error, "f", damaged)
        assert isinstance(explained, Corruption) and str(explained).startswith("f: damaged: ")
    for error in (
        MemoryError(),
        pa.ArrowMemoryError("malloc of size 1048576 failed"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        OSError(errno.EIO, "Input/output error"),
    ):
        assert isinstance(explain_arrow(error, "f", damaged), InternalError)
    # No machine has that much: the length is damaged.
    assert isinstance(explain_arrow(pa.ArrowMemoryError(f"malloc of size {1 << 60} failed"), "f", damaged), Corruption)
