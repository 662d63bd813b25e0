#!/usr/bin/env bash
# Run it in the folder of example 1, after it.
set -euo pipefail
here=$(dirname "$0")

# A coordinator, two pservers and two trainers, all on this machine. The result is the same as in one process.
elasticctr train "$here/job.yaml" --json > many.json &
job=$!
trap 'kill $job 2>/dev/null || true' EXIT

# Kill a trainer: the other one takes over its work, and the engine restarts it.
trainer() { python -c 'import json
roles = json.load(open("runs/many/cluster/roles.json"))["roles"]
print(next(role["pid"] or "" for role in roles if role["name"] == "trainer-1"))' 2>/dev/null || true; }
until grep -qs '"event":"lease"' runs/many/ledger/journal.jsonl; do sleep 0.1; kill -0 $job; done
kill -9 "$(trainer)"
elasticctr status runs/many
wait $job

python - <<'PY'
import json
result = json.load(open("many.json"))
print(f"AUC {result['metrics']['valid']['auc']:.4f} after {result['samples']} samples, each counted once")
PY
elasticctr logs runs/many trainer-1 --lines 6

# The checkpoint is like any other: evaluate, predict, publish, or continue in one process.
elasticctr eval runs/many --json > /dev/null
