#!/usr/bin/env bash
# usage: tools/run_tests.sh [PYTEST OPTIONS]: the tests, a process per core. Up to five that fail are run once more, one
# after the other; the run then ends with their names, and as that second try did.
set -uo pipefail
cd "$(dirname "$0")/.."
cache=$(mktemp -d)
trap 'rm -rf "$cache"' EXIT
.venv/bin/pytest -q -n auto --dist loadfile -o cache_dir="$cache" "$@"
status=$?
failed="$cache/v/cache/lastfailed"
if [ "$status" -ne 1 ] || ! [ -f "$failed" ] || [ "$(grep -c '::' "$failed")" -gt 5 ]; then
    exit "$status"
fi
names=$(grep -o '"[^"]*::.*"' "$failed")
printf 'These failed and are tried once more, alone:\n%s\n' "$names"
.venv/bin/pytest -q -n 0 -o cache_dir="$cache" --last-failed --last-failed-no-failures none "$@" || exit $?
printf 'UNSTEADY, failed beside others and passed alone:\n%s\n' "$names"
