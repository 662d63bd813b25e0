#!/usr/bin/env bash
# usage: tools/proto.sh
# Compiles proto/*.proto into src/elasticctr/serve/protobuf.binpb.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
.venv/bin/python -m venv "$folder/tools"
"$folder/tools/bin/pip" install --quiet grpcio-tools==1.85.1
"$folder/tools/bin/python" -m grpc_tools.protoc --proto_path=proto \
    --descriptor_set_out=src/elasticctr/serve/protobuf.binpb proto/*.proto
