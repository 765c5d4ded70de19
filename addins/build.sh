#!/usr/bin/env bash
# Builds the add-ins that the server serves into dist/, where their sources changed. Exits with 3 and a reason where Node is missing.
set -euo pipefail
cd "$(dirname "$0")"
../npm-ci.sh "$PWD"
sources=(package-lock.json build excel/manifest.xml excel/src libreoffice page pane shared sheets/src sheets/panel ../client/src)
if [ ! -e dist/page/index.html ] || [ -n "$(find "${sources[@]}" -newer dist/page/index.html -print -quit)" ]; then
  node build/build.mjs --served
fi
