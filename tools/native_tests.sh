#!/usr/bin/env bash
# usage: tools/native_tests.sh [address,undefined | thread]
# Builds the native test programs and runs them. Without a sanitizer they are linked with the core that `make build` has
# built; each sanitizer has a build of its own. With `thread`, only programs where threads meet.
# JOBS (default: a job per core) and TESTS (a ctest -R pattern) narrow it; BUILD_ONLY=1 runs nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
sanitize=${1:-}
python=$PWD/.venv/bin/python
PATH=$("$python" -c 'import cmake, ninja; print(cmake.CMAKE_BIN_DIR, ninja.BIN_DIR, sep=":")'):$PATH
jobs=${JOBS:-$(nproc)}
# A test that hits undefined behaviour or a race must fail, not only print.
export ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 TSAN_OPTIONS=halt_on_error=1

if [ -n "$sanitize" ]; then
    build=build/native-$sanitize
    cmake -S . -B "$build" -G Ninja -DPython_EXECUTABLE="$python" -DELASTICCTR_SANITIZE="$sanitize" >/dev/null
else
    build=$(find build -maxdepth 1 -name 'cp*' -printf '%T@ %p\n' | sort -rn | head -1 | cut -d' ' -f2)
    [ -n "$build" ] || { echo 'native tests: nothing is built yet; run make build first' >&2; exit 1; }
fi
if [ "$sanitize" = thread ]; then target=threaded_tests only=(--label-regex threads); else target=native_tests only=(); fi
ninja -C "$build" -j "$jobs" --quiet "$target"
[ -z "${BUILD_ONLY:-}" ] || exit 0
ctest --test-dir "$build" --parallel "$jobs" --output-on-failure --no-tests=error "${only[@]}" ${TESTS:+-R "$TESTS"}
