#!/usr/bin/env bash
# Run it in an empty folder: it makes a log, inspects it, trains on it and scores it.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

elasticctr data synth log --rows "${ROWS:-100000}" --files 4 --max-cardinality 500
elasticctr data inspect "log/part-*" --schema log/schema.yaml --rows 20000
cp log/schema.yaml "$here/job.yaml" .
elasticctr train job.yaml
elasticctr eval runs/first
elasticctr predict runs/first --data "log/part-00000.txt" --out scores.parquet
