#!/usr/bin/env bash
# schemathesis against a server of its own: requests drawn from the OpenAPI document, valid and not, get no fault of
# the server's, and replies are what the document says. Requests are the same at each run.
# usage: tests/openapi/run.sh PROGRAM [arguments of `schemathesis run`], or tests/openapi/run.sh --install
set -euo pipefail
[ "$1" = --install ] || program=$(realpath "$1")
cd "$(dirname "$0")"

if ! cmp -s requirements.txt .venv/installed.txt; then
  rm -rf .venv
  python3 -m venv .venv
  .venv/bin/pip install --quiet --disable-pip-version-check -r requirements.txt
  cp requirements.txt .venv/installed.txt
fi
[ "$1" = --install ] && exit
shift

work=$(mktemp -d)
. ../server.sh
export PYTHONPATH=$PWD # for its hooks
export SCHEMATHESIS_KEY=rs-of-this-run-alone-0123456789abcdef
cat >"$work/relserve.toml" <<TOML
[model]
demo_functions = "all"
[auth]
mode = "none"
admin_key = "$SCHEMATHESIS_KEY"
TOML
keyless=yes
serve "$program" --config "$work/relserve.toml"
.venv/bin/schemathesis --config-file schemathesis.toml run "$address/openapi.json" --no-color "$@"
