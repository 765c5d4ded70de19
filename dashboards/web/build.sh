#!/usr/bin/env bash
# Builds the page into dist/ where its sources changed; the gateway then carries it. Exits with 3 and a reason where Node is missing.
set -euo pipefail
cd "$(dirname "$0")"
../../npm-ci.sh "$PWD"
sources=(index.html package-lock.json vite.config.ts src public ../../client/src ../../examples/reviews.csv)
if [ ! -e dist/index.html ] || [ -n "$(find "${sources[@]}" -newer dist/index.html -print -quit)" ]; then
  npm run --silent build
fi
