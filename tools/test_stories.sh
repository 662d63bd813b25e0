#!/usr/bin/env bash
# usage: tools/test_stories.sh
# Runs every story (tests marked slow), then the native tests under sanitizers. Stories wait much: three go at a time on
# two cores, and what they leave of the processor builds the sanitized programs, which run when the stories are over.
set -uo pipefail
cd "$(dirname "$0")/.."
mkdir -p build
log=build/sanitizers.log
BUILD_ONLY=1 nice -n 19 bash -c 'tools/native_tests.sh address,undefined && tools/native_tests.sh thread' >"$log" 2>&1 &
building=$!
WORKERS=${WORKERS:-$(($(nproc) + 1))} tools/run_tests.sh -m slow --durations=60
stories=$?
wait "$building" || { cat "$log"; echo 'FAILED: the build with sanitizers'; exit 1; }
tools/native_tests.sh address,undefined && tools/native_tests.sh thread
native=$?
[ "$stories" -eq 0 ] || echo 'FAILED: stories'
[ "$native" -eq 0 ] || echo 'FAILED: native tests under sanitizers'
exit $((stories || native))
