#!/usr/bin/env bash
# usage: tools/test_stories.sh
# Runs every story (tests marked slow). They wait much, so three go at a time, and what they leave of the processor goes to
# the native tests under sanitizers, whose output comes at the end.
set -uo pipefail
cd "$(dirname "$0")/.."
mkdir -p build
log=build/sanitizers.log
(nice -n 19 tools/native_tests.sh address,undefined && nice -n 19 tools/native_tests.sh thread) >"$log" 2>&1 &
sanitizers=$!
trap 'pkill -P "$sanitizers"; kill "$sanitizers" 2>/dev/null' INT TERM
WORKERS=${WORKERS:-$(($(nproc) + 1))} tools/run_tests.sh -m slow
stories=$?
wait "$sanitizers"
native=$?
if [ "$native" -ne 0 ]; then cat "$log"; else grep 'tests passed' "$log"; fi
[ "$stories" -eq 0 ] || echo "FAILED: stories"
[ "$native" -eq 0 ] || echo "FAILED: native tests under sanitizers"
exit $((stories != 0 || native != 0))
