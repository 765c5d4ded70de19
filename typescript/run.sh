#!/usr/bin/env bash
# The TypeScript client on a server of its own: its types are made from the server's document, so that they are always
# current; it is compiled with them, and tried. usage: typescript/run.sh PROGRAM
set -euo pipefail
program=$(realpath "$1")
cd "$(dirname "$0")"
../npm-ci.sh .

work=$(mktemp -d)
. ../tests/server.sh
printf '[model]\ndemo_functions = "all"\n' >"$work/relserve.toml"
serve "$program" --config "$work/relserve.toml"

node_modules/.bin/openapi-typescript "$address/openapi.json" --alphabetize -o src/api.ts >&2
RELSERVE_URL=$address RELSERVE_KEY=$key npm test --silent
