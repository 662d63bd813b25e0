#!/usr/bin/env bash
# usage: tools/run_tests.sh [PYTEST OPTIONS]
# Runs tests, a process per core (WORKERS for another number). Stories that failed (tests of real processes, which a busy
# machine can hold up) are tried once more, alone and one after the other, if they are few and nothing else failed. Every
# second try is named at the end, and appended to the file named by SECOND_TRIES.
set -uo pipefail
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
ELASTICCTR_FAILED_TESTS=$folder/failed .venv/bin/pytest -q -n "${WORKERS:-$(nproc)}" --dist loadfile --max-worker-restart 2 \
    -o cache_dir="$folder" "$@"
status=$?
[ "$status" -eq 1 ] || exit "$status"
if grep -q '^unit ' "$folder/failed"; then
    echo 'No second try: a test that is not a story failed.'
    exit 1
fi
if ! [ -s "$folder/failed" ]; then
    echo 'No second try: nobody wrote down what failed.'
    exit 1
fi
mapfile -t names < <(sed 's/^story //' "$folder/failed")
if [ "${#names[@]}" -gt 5 ]; then
    echo "No second try: ${#names[@]} stories failed."
    exit 1
fi
printf 'Tried once more, alone: %s\n' "${names[@]}"
ELASTICCTR_FAILED_TESTS=$folder/again .venv/bin/pytest -q -n 0 -o cache_dir="$folder" "${names[@]}"
status=$?
for name in "${names[@]}"; do
    if grep -qxF "story $name" "$folder/again"; then how=failed; else how=passed; fi
    echo "second try, $how: $name" | tee -a "${SECOND_TRIES:-/dev/null}"
done
exit "$status"
