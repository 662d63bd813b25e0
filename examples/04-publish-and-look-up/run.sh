#!/usr/bin/env bash
# Run it in the folder of example 1, after it.
set -euo pipefail

elasticctr publish runs/first --repo repo --model ctr
elasticctr versions verify repo/ctr
elasticctr cube build repo/ctr --out cube --activate

# Two feasigns with rows (a version's rows are plain Arrow files), and one without.
feasigns=$(python -c 'import glob, pyarrow as pa
print(*pa.ipc.open_file(glob.glob("repo/ctr/1/sparse/*/part-00000.arrow")[0]).get_batch(0)["feasign"].to_pylist()[:2], 7)')
table=ctr/$(basename cube/ctr/1/shard-0000-of-0001/*.cube .cube)
elasticctr cube get "$table" $feasigns --local cube

elasticctr cube server --data cube --port 0 --json > server.json &
server=$!
trap 'kill $server' EXIT
until [ -s server.json ]; do sleep 0.1; done
port=$(python -c 'import json; print(json.loads(open("server.json").readline())["port"])')
elasticctr cube get "$table" $feasigns --endpoint "127.0.0.1:$port"
elasticctr cube bench "$table" --endpoint "127.0.0.1:$port" --random 1000000 --seconds 1

elasticctr train job.yaml --resume --set train.epochs=3
elasticctr publish runs/first --repo repo --model ctr --checkpoint last
elasticctr versions list repo
