#!/usr/bin/env bash
# The Python client's tests against a server of their own: a free loopback port, a temporary data folder, the
# built-in model. usage: tests/python/run.sh RELSERVE_PROGRAM [arguments of `relserve serve`]
set -euo pipefail
cd "$(dirname "$0")/../.."
program=$1
shift

wanted=tests/python/requirements.txt
if ! cmp -s "$wanted" .venv/installed.txt; then
  rm -rf .venv
  python3 -m venv .venv
  .venv/bin/pip install --quiet --disable-pip-version-check -r "$wanted"
  cp "$wanted" .venv/installed.txt
fi

work=$(mktemp -d)
. tests/server.sh
serve "$program" "$@"

export RELSERVE_BASE_URL="$address/v1" RELSERVE_API_KEY="$key"
.venv/bin/python -m unittest discover --start-directory tests/python
