#!/usr/bin/env bash
# The Python package's core tests against a server of their own: the client, pandas, polars, Arrow, DuckDB and
# LangChain. usage: python/test.sh PROGRAM [pytest's arguments], or python/test.sh --install
set -euo pipefail
[ "$1" = --install ] || program=$(realpath "$1")
cd "$(dirname "$0")"

wanted=requirements-test.txt
if ! cmp -s "$wanted" .venv-core/installed.txt; then
  rm -rf .venv-core
  python3 -m venv .venv-core
  .venv-core/bin/pip install --quiet --disable-pip-version-check -r "$wanted"
  cp "$wanted" .venv-core/installed.txt
fi
[ "$1" = --install ] && exit
shift

work=$(mktemp -d)
. ../tests/server.sh
# The client is tried, not the model: it may say anything.
printf '[model]\ndemo_functions = "all"\n' >"$work/relserve.toml"
serve "$program" --config "$work/relserve.toml"

export RELSERVE_URL="$address" RELSERVE_KEY="$key" PYTHONPATH=src
.venv-core/bin/python -m pytest "$@"
