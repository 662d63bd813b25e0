#!/usr/bin/env bash
# Builds the native test programs with the given sanitizers and runs them all.
# usage: tools/native_tests.sh [address,undefined | thread]     (nothing: no sanitizer)
# Takes CMake, Ninja and the Boost headers from the Python packages of .venv. JOBS and TESTS (a ctest -R pattern) narrow it.
set -euo pipefail
cd "$(dirname "$0")/.."
sanitize=${1:-}
python=$PWD/.venv/bin/python
build=build/native-${sanitize:-plain}
bin=$("$python" -c 'import cmake, ninja; print(cmake.CMAKE_BIN_DIR, ninja.BIN_DIR, sep=":")')
export PATH=$bin:$PATH
# A test that hits undefined behaviour or a race must fail, not only print.
export ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 TSAN_OPTIONS=halt_on_error=1

cmake -S . -B "$build" -G Ninja -DPython_EXECUTABLE="$python" -DELASTICCTR_TESTS=ON -DELASTICCTR_SANITIZE="$sanitize" >/dev/null
cmake --build "$build" --parallel "${JOBS:-$(nproc)}"
ctest --test-dir "$build" --output-on-failure --no-tests=error ${TESTS:+-R "$TESTS"}
