#!/usr/bin/env bash
# Installs llama.cpp's Python server into .venv-llama, once per requirements file. It is compiled here, for any processor
# and in a hurry: it answers a few rows of a tiny model, so nothing of it is optimised. Exits with 3 and a reason where that
# cannot be done.
set -euo pipefail
cd "$(dirname "$0")/../.."
wanted=tests/llama/requirements.txt
cmp -s "$wanted" .venv-llama/installed.txt && exit 0
command -v c++ >/dev/null || { echo "no C++ compiler" >&2; exit 3; }
python3 -c 'import ensurepip, venv' 2>/dev/null || { echo "no python3 with venv" >&2; exit 3; }
rm -rf .venv-llama
python3 -m venv .venv-llama
export CMAKE_ARGS="-DGGML_NATIVE=OFF -DGGML_OPENMP=OFF -DGGML_LLAMAFILE=OFF -DLLAVA_BUILD=OFF -DLLAMA_BUILD_TOOLS=OFF \
-DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_SERVER=OFF \
-DCMAKE_C_FLAGS_RELEASE=-O0 -DCMAKE_CXX_FLAGS_RELEASE=-O0"
export CMAKE_BUILD_PARALLEL_LEVEL="${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}"
.venv-llama/bin/pip install --quiet --disable-pip-version-check -r "$wanted" || {
  echo "llama-cpp-python could not be installed" >&2
  exit 3
}
cp "$wanted" .venv-llama/installed.txt
