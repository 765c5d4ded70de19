#!/usr/bin/env bash
# Installs what the npm project in FOLDER needs, once per lock file. Exits with 3 and a reason where Node is missing.
set -euo pipefail
cd "$1"
command -v npm >/dev/null || { echo "no npm: install Node 20 or later" >&2; exit 3; }
stamp=node_modules/installed-lock.json
if ! cmp -s package-lock.json "$stamp"; then
  npm ci --silent --no-audit --no-fund
  cp package-lock.json "$stamp"
fi
