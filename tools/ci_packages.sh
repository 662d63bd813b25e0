#!/usr/bin/env bash
# usage: tools/ci_packages.sh
# Installs what tests talk to and `make build` does not bring: Redis, ip and tc, Java from Debian (as root), and pyspark in
# an environment of its own, build/spark. What is there already is left alone. Without it, those tests are skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
PYSPARK=3.5.8

missing=()
need() { command -v "$1" >/dev/null || missing+=("$2"); }
need c++ g++
need redis-server redis-server
need redis-benchmark redis-tools
need ip iproute2
need tc iproute2
need mount mount
need openssl openssl
need java default-jre-headless
[ -e /usr/include/openssl/ssl.h ] || missing+=(libssl-dev)
if [ "${#missing[@]}" -gt 0 ]; then
    echo "installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get -o DPkg::Lock::Timeout=300 update -qq
    apt-get -o DPkg::Lock::Timeout=300 install -qq -y --no-install-recommends "${missing[@]}" >/dev/null
fi
if ! [ -e build/spark/.installed ]; then
    python=$(command -v python3.11 || command -v python3)
    rm -rf build/spark
    "$python" -m venv build/spark
    build/spark/bin/pip install --quiet --no-compile "pyspark==$PYSPARK"
    touch build/spark/.installed
fi
