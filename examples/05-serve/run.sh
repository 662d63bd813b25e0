#!/usr/bin/env bash
# Run it in the folder of example 1, after examples 1 and 4.
set -euo pipefail

elasticctr serve --repo repo --model ctr --port 0 --grpc-port -1 --index-dir serve --poll 0.2 --drain 0.2 --json > serve.json &
server=$!
trap 'kill $server 2>/dev/null || true' EXIT
until [ -s serve.json ]; do sleep 0.1; done
url=$(python -c 'import json; print(json.loads(open("serve.json").readline())["http"])')
until curl -sf "$url/readyz" > /dev/null; do sleep 0.1; done

# Score one raw line of the log, then a file of lines, and compare with the trainer's scores of the same file.
head -2000 "$(ls log/part-* | tail -1)" > today.txt
python - "$url" <<'PY'
import json, sys, urllib.request
line = open("today.txt").readline().rstrip("\n")
body = json.dumps({"lines": [line]}).encode()
head = {"Content-Type": "application/json"}
ask = urllib.request.Request(f"{sys.argv[1]}/v1/models/ctr:predict", body, head)
print(urllib.request.urlopen(ask).read().decode())
PY
elasticctr call today.txt --endpoint "$url" --model ctr --out served.txt
elasticctr predict "$(ls -d runs/first/checkpoints/step-* | tail -1)" --data today.txt --out offline.txt
python -c 'import numpy as np
a, b = (np.loadtxt(name, ndmin=2)[:, -1] for name in ("served.txt", "offline.txt"))
print(f"{len(a)} scores, largest difference {np.abs(a - b).max():.1g}")
assert np.abs(a - b).max() <= 1e-6'

# A tenth of the requests are answered by version 1 for a while; then all of them; then back to what the donefile says.
elasticctr serving variants first=1:0.1 --sticky user_id --endpoint "$url"
elasticctr serving activate 1 --endpoint "$url"
elasticctr serving resume --endpoint "$url"

kill $server
wait $server
