#!/usr/bin/env bash
# Builds the page into dist/ where its sources changed; the gateway then carries it. Exits with 3 and a reason where Node is missing.
set -euo pipefail
cd "$(dirname "$0")"
command -v npm >/dev/null || { echo "no npm: install Node 20 or later" >&2; exit 3; }
stamp=node_modules/installed-lock.json
if ! cmp -s package-lock.json "$stamp"; then
  npm ci --silent --no-audit --no-fund
  cp package-lock.json "$stamp"
fi
sources=(index.html package-lock.json vite.config.ts src public ../../examples/reviews.csv)
if [ ! -e dist/index.html ] || [ -n "$(find "${sources[@]}" -newer dist/index.html -print -quit)" ]; then
  npm run --silent build
fi
