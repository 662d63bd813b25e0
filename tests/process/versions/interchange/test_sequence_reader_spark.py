"""Hadoop SequenceFiles against Spark itself: it reads ours, we read its own.

Needs Java and a Python with pyspark: this one, or the one named by ELASTICCTR_SPARK_PYTHON.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elasticctr.storage import open_store
from elasticctr.versions.interchange import RowInfo, open_rows, open_writer
from elasticctr.versions.interchange.sequence_writer import SequenceWriter

SPARK_PYTHON = os.environ.get("ELASTICCTR_SPARK_PYTHON") or (
    sys.executable if importlib.util.find_spec("pyspark") else None
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("java") is None, reason="no java here: apt install default-jre-headless"),
    pytest.mark.skipif(SPARK_PYTHON is None, reason="no pyspark here; name its Python in ELASTICCTR_SPARK_PYTHON"),
]

SCRIPT = """
import json, sys
from pyspark import SparkConf, SparkContext
conf = SparkConf().setMaster("local[2]").set("spark.ui.enabled", "false").set("spark.driver.host", "127.0.0.1")
context = SparkContext(conf=conf)
context.setLogLevel("ERROR")
folder = sys.argv[1]
answer = {}
for name in ("bytes", "long"):
    # Small splits: a reader must find its way from the middle of the file by the sync markers.
    pairs = context.sequenceFile(f"file://{folder}/{name}.seq", minSplits=7).collect()
    key = (lambda k: int.from_bytes(k, "little")) if name == "bytes" else (lambda k: k % 2**64)
    answer[name] = sorted([key(k), bytes(v).hex()] for k, v in pairs)
pairs = [(bytearray((i * 2**54 + i).to_bytes(8, "little")), bytearray([i % 256] * 12)) for i in range(1000)]
context.parallelize(pairs, 3).saveAsSequenceFile(f"file://{folder}/theirs")
context.stop()
print(json.dumps(answer))
"""


@pytest.mark.timeout(300)
def test_spark_reads_ours_and_we_read_sparks(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    feasigns = rng.integers(0, 2**64, 5000, dtype=np.uint64)
    rows = rng.integers(0, 256, (5000, 40), dtype=np.uint8)
    with open_writer(open_store(str(tmp_path)), "bytes.seq", "hadoop", RowInfo("fp32", 10, 40)) as writer:
        writer.write(feasigns, rows)
    with (tmp_path / "long.seq").open("wb") as file:
        SequenceWriter(file, 40, "hadoop_long").write(feasigns, rows)
    done = subprocess.run(
        [str(SPARK_PYTHON), "-c", SCRIPT, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=250,
        env={**os.environ, "PYTHONPATH": "", "PYSPARK_PYTHON": str(SPARK_PYTHON)},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answer = json.loads(done.stdout.splitlines()[-1])
    expected = sorted([f, row.tobytes().hex()] for f, row in zip(feasigns.tolist(), rows, strict=True))
    assert answer["bytes"] == expected
    assert answer["long"] == expected
    theirs: dict[int, Any] = {}
    for keys, values in open_rows(str(tmp_path / "theirs"), "raw").blocks():
        theirs |= dict(zip(keys.tolist(), [value.tobytes() for value in values], strict=True))
    assert theirs == {i * 2**54 + i: bytes([i % 256] * 12) for i in range(1000)}
